/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "failing_allocator.h"
#include "fixture.h"
#include "format/streams/item.h"
#include "format/streams/stream.h"
#include "format/streams/tensor_pickle.h"
#include "stream_part.h"
#include "zip_builder.h"

/* ---- the reference checkpoints ---- */

/* Applies what the view says of its elements' bits. */
static void resolve(const struct tensor_view *view, unsigned char *element)
{
    size_t size = dcp_dtype_size(view->dtype);
    size_t half = view->dtype == DCP_C64 || view->dtype == DCP_C128 ? size / 2 : size;
    if (view->negative)
        for (size_t end = half; end <= size; end += half)
            element[end - 1] ^= 0x80;
    if (view->conjugate)
        element[size - 1] ^= 0x80;
}

static void check_elements(const struct fixture_piece *piece, const unsigned char *stream,
                           const struct tensor_view *view)
{
    size_t size = dcp_dtype_size(view->dtype);
    int64_t strides[DCP_MAX_DIMS];
    int64_t index[DCP_MAX_DIMS] = {0};
    int64_t volume = box_volume((struct box){piece->ndim, piece->offsets, piece->sizes});
    shape_strides(piece->ndim, piece->global_shape, strides);
    for (int64_t n = 0; n < volume; n++) {
        int64_t from = view->storage_offset;
        int64_t to = 0;
        unsigned char element[16];
        for (int32_t d = 0; d < piece->ndim; d++) {
            from += index[d] * view->strides[d];
            to += (piece->offsets[d] + index[d]) * strides[d];
        }
        assert_true(((uint64_t)from + 1) * size <= view->storage_bytes);
        memcpy(element, stream + view->data_offset + (size_t)from * size, size);
        resolve(view, element);
        assert_memory_equal(element, piece->whole.data + (size_t)to * size, size);
        for (int32_t d = piece->ndim - 1; d >= 0 && ++index[d] == piece->sizes[d]; d--)
            index[d] = 0;
    }
}

static void check_piece(const struct fixture_piece *piece, void *context)
{
    if (piece->dtype == DCP_DTYPE_NONE || piece->zstd)
        return;
    struct arena arena;
    struct tensor_view view;
    arena_init(&arena, 0);
    assert_int_equal(
        item_open_tensor(byte_source_memory(piece->stream.data, piece->stream.size), &arena, &view),
        DCP_OK);
    assert_int_equal(item_check_view(&view, piece->dtype, piece->ndim, piece->sizes), DCP_OK);
    assert_false(view.swapped);
    assert_false(view.deflated);
    assert_int_equal(view.data_length, view.storage_bytes);
    check_elements(piece, piece->stream.data, &view);
    arena_free(&arena);
    ++*(size_t *)context;
}

static void test_reference_tensors(void **state)
{
    (void)state;
    static const char *const names[] = {"basic",
                                        "dtypes",
                                        "layouts",
                                        "nesting",
                                        "shapes",
                                        "training_state",
                                        "fsdp2_tp_w4",
                                        "mesh2d_w4",
                                        "uneven_w4",
                                        "rank_local_w2",
                                        "sharded_tensor_w2",
                                        "torch_2.0.1_single",
                                        "torch_2.2.2_single",
                                        "torch_2.4.1_sharded_w2",
                                        "torch_2.7.1_single",
                                        "torch_2.14.1_single",
                                        "torch_2.15.0_single",
                                        "python_3.13_single"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct fixture fixture;
        size_t checked = 0;
        fixture_open(&fixture, names[i]);
        fixture_each_piece(&fixture, check_piece, &checked);
        fixture_close(&fixture);
        assert_true(checked > 0);
    }
}

/* ---- made by hand ---- */

/* How to make a tensor's item; the zero value of each field is the ordinary one. */
struct recipe {
    const char *function;
    const char *tag;
    const char *module;
    const char *class;
    const char *key;
    const char *dtype;  /* as in v3 */
    const char *hooks;  /* opcodes */
    const char *flags;  /* opcodes */
    const char *before; /* opcodes in front of the call, and behind it */
    const char *after;
    int64_t elements;
    int64_t offset;
    int32_t ndim;
    int64_t sizes[3];
    int32_t stride_count;
    int64_t strides[3];
    size_t record_size;
};

static const struct recipe ordinary = {.function = "_rebuild_tensor_v2",
                                       .tag = "storage",
                                       .module = "torch",
                                       .class = "FloatStorage",
                                       .key = "0",
                                       .hooks = "ccollections\nOrderedDict\n)R",
                                       .elements = 6,
                                       .ndim = 2,
                                       .sizes = {2, 3},
                                       .stride_count = 2,
                                       .strides = {3, 1},
                                       .record_size = 24};

static void put_text(struct buffer *out, const char *text)
{
    pickle_put_string(out, text, strlen(text));
}

static void put_opcodes(struct buffer *out, const char *opcodes)
{
    if (opcodes != NULL)
        buffer_append(out, opcodes, strlen(opcodes));
}

static void put_tuple(struct buffer *out, int32_t count, const int64_t *numbers)
{
    pickle_put_op(out, OP_MARK);
    for (int32_t i = 0; i < count; i++)
        pickle_put_int(out, numbers[i]);
    pickle_put_op(out, OP_TUPLE);
}

static void put_pickle(struct buffer *out, const struct recipe *recipe)
{
    pickle_put_protocol(out, 2);
    put_opcodes(out, recipe->before);
    pickle_put_global(out, "torch._utils", recipe->function);
    pickle_put_op(out, OP_MARK);
    pickle_put_op(out, OP_MARK);
    put_text(out, recipe->tag);
    pickle_put_global(out, recipe->module, recipe->class);
    put_text(out, recipe->key);
    put_text(out, "cuda:0");
    pickle_put_int(out, recipe->elements);
    pickle_put_op(out, OP_TUPLE);
    pickle_put_op(out, OP_BINPERSID);
    pickle_put_int(out, recipe->offset);
    put_tuple(out, recipe->ndim, recipe->sizes);
    put_tuple(out, recipe->stride_count, recipe->strides);
    pickle_put_bool(out, true);
    put_opcodes(out, recipe->hooks);
    if (recipe->dtype != NULL)
        pickle_put_global(out, "torch", recipe->dtype);
    put_opcodes(out, recipe->flags);
    pickle_put_op(out, OP_TUPLE);
    pickle_put_op(out, OP_REDUCE);
    put_opcodes(out, recipe->after);
    pickle_put_op(out, OP_STOP);
}

static void build(struct zip_builder *builder, const struct recipe *recipe)
{
    static const unsigned char zeros[1000];
    struct buffer pickle;
    buffer_init(&pickle, 0);
    put_pickle(&pickle, recipe);
    zip_builder_init(builder);
    zip_builder_add_container(builder, pickle.data, pickle.size);
    zip_builder_add(builder, "archive/data/0", zeros, recipe->record_size);
    zip_builder_finish(builder);
    buffer_free(&pickle);
}

static dcp_status open_built(const struct recipe *recipe, struct arena *arena,
                             struct tensor_view *view)
{
    struct zip_builder builder;
    build(&builder, recipe);
    arena_init(arena, 0);
    dcp_status status =
        item_open_tensor(byte_source_memory(builder.out.data, builder.out.size), arena, view);
    zip_builder_free(&builder);
    return status;
}

static void expect_opens(const struct recipe *recipe, dcp_dtype dtype, uint64_t storage_bytes)
{
    struct arena arena;
    struct tensor_view view;
    if (open_built(recipe, &arena, &view) != DCP_OK)
        fail_msg("%s", dcp_error_message());
    assert_int_equal(view.dtype, dtype);
    assert_int_equal(view.storage_bytes, storage_bytes);
    arena_free(&arena);
}

static void expect_refused(const struct recipe *recipe, const char *words)
{
    struct arena arena;
    struct tensor_view view;
    assert_int_equal(open_built(recipe, &arena, &view), DCP_ERR_FORMAT);
    if (strstr(dcp_error_message(), words) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", words, dcp_error_message());
    arena_free(&arena);
}

/* expect(CHANGES, ...) on the ordinary recipe with some fields changed. */
#define OPENS(dtype_, bytes_, ...)                                                                 \
    do {                                                                                           \
        struct recipe recipe = ordinary;                                                           \
        __VA_ARGS__;                                                                               \
        expect_opens(&recipe, dtype_, bytes_);                                                     \
    } while (0)
#define REFUSED(words_, ...)                                                                       \
    do {                                                                                           \
        struct recipe recipe = ordinary;                                                           \
        __VA_ARGS__;                                                                               \
        expect_refused(&recipe, words_);                                                           \
    } while (0)

static void test_forms(void **state)
{
    (void)state;
    OPENS(DCP_F32, 24, (void)0);
    OPENS(DCP_F32, 24, recipe.module = "torch.cuda");
    OPENS(DCP_F32, 24, recipe.hooks = "}");
    OPENS(DCP_F32, 24, recipe.hooks = "N");
    OPENS(DCP_F32, 24, recipe.flags = "N");
    OPENS(DCP_F32, 24, recipe.flags = "}U\4conj\x88sU\3neg\x89s");
    OPENS(DCP_U8, 24, recipe.module = "torch.storage"; recipe.class = "UntypedStorage";
          recipe.elements = 24);
    OPENS(DCP_U16, 24, recipe.function = "_rebuild_tensor_v3"; recipe.module = "torch.storage";
          recipe.class = "UntypedStorage"; recipe.elements = 24; recipe.dtype = "uint16");
    /* A parameter, with and without Python attributes; a tensor with Python attributes. */
    OPENS(DCP_F32, 24, recipe.before = "ctorch._utils\n_rebuild_parameter\n(";
          recipe.after = "\x88}tR");
    OPENS(DCP_F32, 24, recipe.before = "ctorch._utils\n_rebuild_parameter_with_state\n(";
          recipe.after = "\x88}K\7tR");
    /* Zero-sized, with an offset: nothing to be outside of anything. */
    OPENS(DCP_F32, 0, recipe.sizes[0] = 0; recipe.offset = 5; recipe.elements = 0;
          recipe.record_size = 0);
    /* Offset and repeating strides inside of the storage. */
    OPENS(DCP_F32, 24, recipe.offset = 3; recipe.strides[0] = 0);
}

static void test_flags_and_requires_grad(void **state)
{
    (void)state;
    static const char pickled[] = "\x80\x02"
                                  "ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storage"
                                  "ctorch\nComplexFloatStorage\nX\1\0\0\0007X\3\0\0\0cpuK\4tQ"
                                  "K\1(K\2t(K\2t\x88N}X\4\0\0\0conj\x88sX\3\0\0\0neg\x88stR.";
    struct pickle_document document;
    struct tensor_pickle tensor;
    struct arena arena;
    arena_init(&arena, 0);
    assert_int_equal(pickle_read(pickled, sizeof pickled - 1, true, &document), DCP_OK);
    assert_true(tensor_pickle_is_tensor(document.root));
    assert_int_equal(tensor_pickle_parse(document.root, &arena, &tensor), DCP_OK);
    assert_true(tensor.requires_grad);
    assert_true(tensor.conjugate);
    assert_true(tensor.negative);
    assert_int_equal(tensor.dtype, DCP_C64);
    assert_int_equal(tensor.storage_bytes, 32);
    assert_int_equal(tensor.storage_offset, 1);
    assert_int_equal(tensor.storage_key_length, 1);
    assert_memory_equal(tensor.storage_key, "7", 1);
    assert_int_equal(tensor.ndim, 1);
    assert_int_equal(tensor.sizes[0], 2);
    assert_int_equal(tensor.strides[0], 2);
    pickle_free(&document);
    arena_free(&arena);
}

static void test_refused(void **state)
{
    (void)state;
    REFUSED("not a tensor", recipe.after = "0K\2");
    REFUSED("not a tensor", recipe.function = "_rebuild_sparse_tensor");
    REFUSED("not a tensor", recipe.before = "cos\nsystem\n("; recipe.after = "tR");
    REFUSED("not a tensor", recipe.after = "}b");
    REFUSED("8 arguments", recipe.flags = "}}");
    REFUSED("not of a storage", recipe.tag = "module");
    REFUSED("class of storage is unknown", recipe.class = "SparseStorage");
    REFUSED("class of storage is unknown", recipe.module = "os");
    REFUSED("class of storage is unknown", recipe.class = "UntypedStorage");
    REFUSED("no record", recipe.key = "1");
    REFUSED("no record", recipe.key = "../data/0");
    REFUSED("no record", recipe.key = "");
    REFUSED("size of its storage is invalid", recipe.elements = -1);
    REFUSED("size of its storage is invalid", recipe.elements = INT64_MAX);
    REFUSED("has 24 bytes, expected 28", recipe.elements = 7);
    REFUSED("has 20 bytes, expected 24", recipe.record_size = 20);
    REFUSED("offset is invalid", recipe.offset = -1);
    REFUSED("reaches beyond", recipe.offset = 1);
    REFUSED("reaches beyond", recipe.offset = INT64_MAX);
    REFUSED("reaches beyond", recipe.strides[0] = 4);
    REFUSED("reaches beyond", recipe.strides[0] = INT64_MAX);
    REFUSED("reaches beyond", recipe.sizes[0] = 3);
    REFUSED("at index 0", recipe.sizes[0] = -2);
    REFUSED("at index 1", recipe.strides[1] = -1);
    REFUSED("exceeds 2^63", recipe.sizes[0] = INT64_MAX; recipe.strides[0] = 0);
    REFUSED("2 dimensions and 1 strides", recipe.stride_count = 1);
    REFUSED("hooks", recipe.hooks = "ccollections\nOrderedDict\n)RK\1K\2s");
    REFUSED("hooks", recipe.hooks = "cposix\nsystem\n)R");
    REFUSED("hooks", recipe.hooks = "}K\1K\2s");
    REFUSED("flags is unknown", recipe.flags = "}U\4evil\x88s");
    REFUSED("not a bool", recipe.flags = "}U\4conjK\1s");
    REFUSED("not a dict", recipe.flags = "K\1");
    REFUSED("dtype is unknown", recipe.function = "_rebuild_tensor_v3"; recipe.dtype = "load");
    REFUSED("dtype is unknown", recipe.function = "_rebuild_tensor_v3"; recipe.flags = "K\1");
    REFUSED("not a bool", recipe.before = "ctorch._utils\n_rebuild_parameter\n(";
            recipe.after = "K\1}tR");
}

static dcp_status parse_text(const char *text, size_t size)
{
    struct pickle_document document;
    struct tensor_pickle tensor;
    struct arena arena;
    arena_init(&arena, 0);
    assert_int_equal(pickle_read(text, size, true, &document), DCP_OK);
    dcp_status status = tensor_pickle_parse(document.root, &arena, &tensor);
    assert_true(status != DCP_OK || tensor_pickle_is_tensor(document.root));
    pickle_free(&document);
    arena_free(&arena);
    return status;
}

#define PARSES(text) assert_int_equal(parse_text(text, sizeof(text) - 1), DCP_OK)
#define PARSE_FAILS(words, text)                                                                   \
    do {                                                                                           \
        assert_int_equal(parse_text(text, sizeof(text) - 1), DCP_ERR_FORMAT);                      \
        if (strstr(dcp_error_message(), words) == NULL)                                            \
            fail_msg("\"%s\" is not in \"%s\"", words, dcp_error_message());                       \
    } while (0)

#define FROM_TYPE                                                                                  \
    "\x80\2ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\n"
#define STORAGE                                                                                    \
    "(U\7storagectorch\nFloatStorage\nU\1"                                                         \
    "0U\3cpuK\2tQ"
#define REST      "K\0(K\2t(K\1t\x89N"
#define PARAMETER "ctorch._utils\n_rebuild_parameter\n("

static void test_wrapped(void **state)
{
    (void)state;
    PARSES(FROM_TYPE "ctorch\nTensor\n(" STORAGE REST "tU\5statetR.");
    PARSES(FROM_TYPE "ctorch.nn.parameter\nParameter\n(" STORAGE REST "tU\5statetR.");
    PARSE_FAILS("not a tensor", FROM_TYPE "cposix\nsystem\n(" STORAGE REST "tU\5statetR.");
    PARSE_FAILS("not a tensor", FROM_TYPE "ctorch\nTensor\nK\1U\5statetR.");
    PARSES("\x80\2" PARAMETER PARAMETER "ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE REST
           "tR\x88NtR\x88NtR.");
    PARSE_FAILS("not a tensor", "\x80\2" PARAMETER PARAMETER PARAMETER PARAMETER
                                "ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE REST
                                "tR\x88NtR\x88NtR\x88NtR\x88NtR.");
    PARSE_FAILS("not a tensor", "\x80\2" PARAMETER "K\1\x88NtR.");
}

#define V2 "\x80\2ctorch._utils\n_rebuild_tensor_v2\n("

static void test_wrong_kinds(void **state)
{
    (void)state;
    PARSES(V2 STORAGE REST "tR.");
    PARSE_FAILS("not a persistent id", V2 "K\1" REST "tR.");
    PARSE_FAILS("not a persistent id", V2 "K\1Q" REST "tR.");
    PARSE_FAILS("not a persistent id", V2 "(U\7storagetQ" REST "tR.");
    PARSE_FAILS("class of storage is unknown", V2 "(U\7storageU\1xU\0010U\3cpuK\2tQ" REST "tR.");
    PARSE_FAILS("not a string", V2 "(U\7storagectorch\nFloatStorage\nK\0U\3cpuK\2tQ" REST "tR.");
    PARSE_FAILS("size of its storage is invalid",
                V2 "(U\7storagectorch\nFloatStorage\nU\0010U\3cpuU\0012tQ" REST "tR.");
    PARSE_FAILS("offset is invalid", V2 STORAGE "N(K\2t(K\1t\x89NtR.");
    PARSE_FAILS("shape is not a tuple", V2 STORAGE "K\0](K\1t\x89NtR.");
    PARSE_FAILS("strides is not a tuple", V2 STORAGE "K\0(K\2tN\x89NtR.");
    PARSE_FAILS("at index 0", V2 STORAGE "K\0(\x88t(K\1t\x89NtR.");
    PARSE_FAILS("requires_grad", V2 STORAGE "K\0(K\2t(K\1tK\1NtR.");
    PARSE_FAILS("hooks", V2 STORAGE "K\0(K\2t(K\1t\x89K\1tR.");
}

static void test_no_pickle(void **state)
{
    (void)state;
    struct zip_builder builder;
    struct tensor_view view;
    struct arena arena;
    arena_init(&arena, 0);
    zip_builder_init(&builder);
    zip_builder_add(&builder, "archive/version", "3", 1);
    zip_builder_finish(&builder);
    assert_int_equal(
        item_open_tensor(byte_source_memory(builder.out.data, builder.out.size), &arena, &view),
        DCP_ERR_FORMAT);
    assert_non_null(strstr(dcp_error_message(), "data.pkl"));
    zip_builder_free(&builder);
    arena_free(&arena);
}

static void test_check_view(void **state)
{
    (void)state;
    const int64_t sizes[] = {2, 3};
    const int64_t others[] = {3, 2};
    struct tensor_view view = {.dtype = DCP_F32, .ndim = 2, .sizes = sizes};
    assert_int_equal(item_check_view(&view, DCP_F32, 2, sizes), DCP_OK);
    assert_int_equal(item_check_view(&view, DCP_I32, 2, sizes), DCP_ERR_FORMAT);
    assert_non_null(strstr(dcp_error_message(), "float32"));
    assert_non_null(strstr(dcp_error_message(), "int32"));
    assert_int_equal(item_check_view(&view, DCP_F32, 1, sizes), DCP_ERR_FORMAT);
    assert_int_equal(item_check_view(&view, DCP_F32, 2, others), DCP_ERR_FORMAT);
    assert_non_null(strstr(dcp_error_message(), "[3, 2]"));
}

/* What we write, we read; no prefix of it is an item. */
static void test_own_streams(void **state)
{
    (void)state;
    static const unsigned char zeros[1000];
    const int64_t sizes[] = {3, 5, 2};
    struct buffer stream;
    struct arena arena;
    struct tensor_view view;
    buffer_init(&stream, 0);
    assert_int_equal(stream_part_head(&stream, DCP_C128, 3, sizes), DCP_OK);
    size_t data_offset = stream.size;
    buffer_append(&stream, zeros, 30 * 16);
    assert_int_equal(stream_part_tail(&stream, DCP_C128, 3, sizes, 77), DCP_OK);
    arena_init(&arena, 0);
    for (size_t size = 0; size < stream.size; size++)
        assert_int_not_equal(item_open_tensor(byte_source_memory(stream.data, size), &arena, &view),
                             DCP_OK);
    assert_int_equal(item_open_tensor(byte_source_memory(stream.data, stream.size), &arena, &view),
                     DCP_OK);
    assert_int_equal(item_check_view(&view, DCP_C128, 3, sizes), DCP_OK);
    assert_int_equal(view.data_offset, data_offset);
    assert_int_equal(view.data_length, 30 * 16);
    assert_true(view.has_crc);
    assert_int_equal(view.crc, 77);
    arena_free(&arena);
    buffer_free(&stream);
}

static void test_no_memory(void **state)
{
    (void)state;
    struct zip_builder builder;
    build(&builder, &ordinary);
    size_t failed = 0;
    for (;; failed++) {
        struct arena arena;
        struct tensor_view view;
        failing_allocator_install(failed);
        arena_init(&arena, 0);
        dcp_status status =
            item_open_tensor(byte_source_memory(builder.out.data, builder.out.size), &arena, &view);
        arena_free(&arena);
        failing_allocator_remove();
        if (status == DCP_OK)
            break;
        assert_int_equal(status, DCP_ERR_NO_MEMORY);
    }
    assert_true(failed >= 5);
    zip_builder_free(&builder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_tensors),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_flags_and_requires_grad),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_wrapped),
        cmocka_unit_test(test_wrong_kinds),
        cmocka_unit_test(test_no_pickle),
        cmocka_unit_test(test_check_view),
        cmocka_unit_test(test_own_streams),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
