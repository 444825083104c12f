/* SPDX-License-Identifier: BSD-3-Clause */
/* Storages that tensors of an object share: read into one block, and saved again as one storage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/memory.h"
#include "failing_allocator.h"
#include "format/streams/item.h"
#include "format/zip/zip.h"
#include "object_reading.h"
#include "state/node_block.h"
#include "zip_builder.h"

#define STORAGE(type, key, count)                                                                  \
    "(X\7\0\0\0storagec" type "\nX\1\0\0\0" key "X\3\0\0\0cpuK" count "tQ"
#define HOOKS "ccollections\nOrderedDict\n)R"
/* view: offset, sizes, strides */
#define TYPED(type, count, view)                                                                   \
    "ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE("torch\n" type, "0", count) view "\x89" HOOKS   \
                                                                                    "tR"
#define UNTYPED(count, view, dtype)                                                                \
    "ctorch._utils\n_rebuild_tensor_v3\n(" STORAGE("torch.storage\nUntypedStorage", "0", count)    \
        view "\x89" HOOKS "ctorch\n" dtype "\ntR"
#define FLOATS(view) TYPED("FloatStorage", "\6", view)

/* The whole as [2, 3], its transpose, a column, an element that is repeated, what overlaps, and no
 * elements at the end. */
static const char views[] = "\x80\x02(" FLOATS("K\0K\2K\3\x86K\3K\1\x86")
    FLOATS("K\0K\3K\2\x86K\1K\3\x86") FLOATS("K\1K\2\x85K\3\x85") FLOATS("K\4K\2K\2\x86K\0K\0\x86")
        FLOATS("K\2K\3\x85K\1\x85") FLOATS("K\6K\0\x85K\1\x85") "t.";
enum { VIEWS = 6 };

static const float floats[] = {1, 2, 3, 4, 5, 6};

static const struct state_tensor *tensor_of(const dcp_state *node)
{
    assert_int_equal(node->kind, DCP_KIND_TENSOR);
    assert_int_equal(node->as.tensor->chunk_count, 1);
    return node->as.tensor;
}

static const struct state_chunk *chunk_of(const dcp_state *node)
{
    return &tensor_of(node)->chunks[0];
}

/* Where the elements begin in the block. */
static int64_t bytes_before(const dcp_state *node)
{
    const struct state_chunk *chunk = chunk_of(node);
    return (int64_t)((const unsigned char *)chunk->data -
                     (const unsigned char *)chunk->block->data);
}

static void open_views(struct object *object, const char *pickle, size_t size, bool deflated)
{
    const struct record record = {"archive/data/0", floats, sizeof floats, deflated};
    if (object_open_pickle(object, pickle, size, &record, 1) != DCP_OK)
        fail_msg("%s", dcp_error_message());
}

#define OPEN(object, pickle) open_views(object, pickle, sizeof(pickle) - 1, false)

/* Writes an object and reads it back. */
static void save_again(const dcp_state *node, struct object *again, struct buffer *stream)
{
    buffer_init(stream, 0);
    if (item_encode_stream(node, stream) != DCP_OK ||
        object_open(again, byte_source_memory(stream->data, stream->size)) != DCP_OK)
        fail_msg("%s", dcp_error_message());
}

/* The bytes of the storage in a record of a stream; -1: there is none. */
static int64_t storage_bytes(const struct buffer *stream, const char *name)
{
    struct zip_archive archive;
    assert_int_equal(zip_open(byte_source_memory(stream->data, stream->size), &archive), DCP_OK);
    const struct zip_record *record = zip_find(&archive, name);
    int64_t bytes = record == NULL ? -1 : (int64_t)record->size;
    zip_close(&archive);
    return bytes;
}

static void assert_same_views(const dcp_state *expected, const dcp_state *found)
{
    assert_int_equal(dcp_state_count(found), dcp_state_count(expected));
    for (size_t i = 0; i < dcp_state_count(expected); i++) {
        const struct state_tensor *a = tensor_of(dcp_state_at(expected, i));
        const struct state_tensor *b = tensor_of(dcp_state_at(found, i));
        size_t size = (size_t)a->ndim * sizeof(int64_t);
        assert_int_equal(b->dtype, a->dtype);
        assert_int_equal(b->ndim, a->ndim);
        assert_int_equal(b->requires_grad, a->requires_grad);
        assert_memory_equal(b->global_shape, a->global_shape, size);
        assert_memory_equal(b->chunks[0].strides, a->chunks[0].strides, size);
        assert_int_equal(bytes_before(dcp_state_at(found, i)),
                         bytes_before(dcp_state_at(expected, i)));
        assert_int_equal(b->chunks[0].block->size, a->chunks[0].block->size);
        assert_memory_equal(b->chunks[0].block->data, a->chunks[0].block->data,
                            a->chunks[0].block->size);
        for (size_t j = 0; j < i; j++)
            assert_int_equal(chunk_of(dcp_state_at(found, j))->block == b->chunks[0].block,
                             chunk_of(dcp_state_at(expected, j))->block == a->chunks[0].block);
    }
}

static void views_of_a_storage_share_a_block(void **state)
{
    (void)state;
    static const int64_t before[VIEWS] = {0, 0, 4, 16, 8, 24};
    for (int deflated = 0; deflated < 2; deflated++) {
        struct object object;
        open_views(&object, views, sizeof views - 1, deflated != 0);
        const struct state_block *block = chunk_of(object_child(&object, 0))->block;
        assert_non_null(block);
        assert_int_equal(block->size, sizeof floats);
        assert_memory_equal(block->data, floats, sizeof floats);
        for (size_t i = 0; i < VIEWS; i++) {
            assert_ptr_equal(chunk_of(object_child(&object, i))->block, block);
            assert_int_equal(bytes_before(object_child(&object, i)), before[i]);
        }
        dcp_tensor transposed, repeated;
        assert_int_equal(dcp_state_chunk(object_child(&object, 1), 0, &transposed), DCP_OK);
        assert_true(transposed.strided);
        assert_int_equal(transposed.strides[0], 1);
        assert_int_equal(transposed.strides[1], 3);
        assert_int_equal(dcp_state_chunk(object_child(&object, 3), 0, &repeated), DCP_OK);
        assert_int_equal(repeated.strides[0], 0);
        object_close(&object);
    }
}

static void views_are_saved_as_they_are(void **state)
{
    (void)state;
    struct object object, again;
    struct buffer stream;
    OPEN(&object, views);
    save_again(object.node, &again, &stream);
    assert_same_views(object.node, again.node);
    assert_int_equal(storage_bytes(&stream, "data/0"), sizeof floats);
    assert_int_equal(storage_bytes(&stream, "data/1"), -1);
    object_close(&again);
    object_close(&object);
    buffer_free(&stream);
}

struct text {
    const char *bytes;
    size_t size;
};
#define TEXT(literal)                                                                              \
    {                                                                                              \
        literal, sizeof(literal) - 1                                                               \
    }

/* How often `what` is in the pickle of a stream. */
static size_t count_in_pickle(const struct buffer *stream, const char *what)
{
    struct zip_archive archive;
    void *pickle;
    size_t count = 0, length = strlen(what);
    assert_int_equal(zip_open(byte_source_memory(stream->data, stream->size), &archive), DCP_OK);
    const struct zip_record *record = zip_find(&archive, "data.pkl");
    assert_int_equal(zip_read(&archive, record, stream->size, &pickle), DCP_OK);
    for (size_t i = 0; i + length <= record->size; i++)
        count += memcmp((const char *)pickle + i, what, length) == 0;
    memory_release(pickle);
    zip_close(&archive);
    return count;
}

/* PyTorch gives tensors the dtype of the storage's class that it has met first, unless they say
 * their own: then the storage counts bytes. */
static void tensors_of_several_dtypes_share_a_storage(void **state)
{
    (void)state;
    static const struct {
        struct text pickle;
        size_t typed; /* rebuilt with the dtype of the storage */
    } cases[] = {
        {TEXT("\x80\x02(" UNTYPED("\x18", "K\1K\3\x85K\2\x85", "uint16") FLOATS("K\1K\2\x85K\1\x85")
                  TYPED("ByteStorage", "\x18", "K\2K\5\x85K\1\x85") "t."),
         1},
        {TEXT("\x80\x02(" FLOATS("K\0K\6\x85K\1\x85") TYPED("IntStorage", "\6", "K\0K\6\x85K\1\x85")
                  FLOATS("K\1K\1\x85K\1\x85") "t."),
         1},
        {TEXT("\x80\x02(" UNTYPED("\x18", "K\1K\1\x85K\1\x85", "uint64")
                  UNTYPED("\x18", "K\1K\1\x85K\1\x85", "float8_e5m2") "t."),
         0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct object object, again;
        struct buffer stream;
        open_views(&object, cases[i].pickle.bytes, cases[i].pickle.size, false);
        assert_ptr_equal(chunk_of(object_child(&object, 0))->block,
                         chunk_of(object_child(&object, 1))->block);
        save_again(object.node, &again, &stream);
        assert_same_views(object.node, again.node);
        assert_int_equal(count_in_pickle(&stream, "_rebuild_tensor_v2"), cases[i].typed);
        assert_int_equal(storage_bytes(&stream, "data/1"), -1);
        object_close(&again);
        object_close(&object);
        buffer_free(&stream);
    }
}

/* A class counts elements: one whose bytes are no number of them is written as bytes. */
static void storages_that_are_no_number_of_elements_count_bytes(void **state)
{
    (void)state;
    static const char pickle[] =
        "\x80\x02(" UNTYPED("\x18", "K\0K\1\x85K\1\x85", "complex128") "t.";
    struct object object, again;
    struct buffer stream;
    OPEN(&object, pickle);
    save_again(object.node, &again, &stream);
    assert_same_views(object.node, again.node);
    assert_int_equal(count_in_pickle(&stream, "ComplexDoubleStorage"), 0);
    object_close(&again);
    object_close(&object);
    buffer_free(&stream);
}

static dcp_status open_big_endian(struct object *object, const char *pickle, size_t size)
{
    static const unsigned char bytes[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct zip_builder builder;
    zip_builder_init(&builder);
    zip_builder_add(&builder, "archive/data.pkl", pickle, size);
    zip_builder_add(&builder, "archive/byteorder", "big", 3);
    zip_builder_add(&builder, "archive/version", "3\n", 2);
    zip_builder_add(&builder, "archive/data/0", bytes, sizeof bytes);
    zip_builder_finish(&builder);
    dcp_status status = object_open(object, byte_source_memory(builder.out.data, builder.out.size));
    zip_builder_free(&builder);
    return status;
}

/* A block has one byte order, so that elements of another width get another block. */
static void other_byte_orders_share_by_width(void **state)
{
    (void)state;
    static const char pickle[] = "\x80\x02(" TYPED("IntStorage", "\2", "K\0K\2\x85K\1\x85")
        TYPED("IntStorage", "\2", "K\1K\1\x85K\1\x85")
            UNTYPED("\x08", "K\0K\2\x85K\1\x85", "uint32")
                UNTYPED("\x08", "K\1K\1\x85K\1\x85", "uint16") "t.";
    static const uint32_t numbers[] = {0x01020304, 0x05060708};
    static const uint16_t narrow = 0x0304;
    struct object object, again;
    struct buffer stream;
    assert_int_equal(open_big_endian(&object, pickle, sizeof pickle - 1), DCP_OK);
    const struct state_block *block = chunk_of(object_child(&object, 0))->block;
    assert_memory_equal(block->data, numbers, sizeof numbers);
    assert_ptr_equal(chunk_of(object_child(&object, 1))->block, block);
    assert_ptr_equal(chunk_of(object_child(&object, 2))->block, block);
    assert_ptr_not_equal(chunk_of(object_child(&object, 3))->block, block);
    assert_memory_equal(chunk_of(object_child(&object, 3))->data, &narrow, sizeof narrow);
    save_again(object.node, &again, &stream);
    assert_same_views(object.node, again.node);
    object_close(&again);
    object_close(&object);
    buffer_free(&stream);
}

/* What is flagged lies in memory of its own, as the flag says. */
static void flagged_views_leave_their_storage(void **state)
{
    (void)state;
    static const char pickle[] =
        "\x80\x02(" FLOATS("K\0K\6\x85K\1\x85") "ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE(
            "torch\nFloatStorage", "0", "\6") "K\1K\2\x85K\2\x85\x89" HOOKS
                                              "}X\3\0\0\0neg\x88stRt.";
    static const float negative[] = {-2, -4};
    struct object object, again;
    struct buffer stream;
    OPEN(&object, pickle);
    assert_memory_equal(chunk_of(object_child(&object, 0))->data, floats, sizeof floats);
    assert_memory_equal(chunk_of(object_child(&object, 1))->data, negative, sizeof negative);
    assert_ptr_not_equal(chunk_of(object_child(&object, 1))->block,
                         chunk_of(object_child(&object, 0))->block);
    save_again(object.node, &again, &stream);
    assert_same_views(object.node, again.node);
    assert_int_equal(storage_bytes(&stream, "data/1"), sizeof negative);
    object_close(&again);
    object_close(&object);
    buffer_free(&stream);
}

#define PARAMETER(tensor, needs_grad)                                                              \
    "ctorch._utils\n_rebuild_parameter\n" tensor needs_grad HOOKS "\x87R"

/* A tensor that says its own dtype may not say that it needs gradients. */
static void parameters_stay_parameters(void **state)
{
    (void)state;
    static const char pickle[] = "\x80\x02(" PARAMETER(FLOATS("K\0K\6\x85K\1\x85"), "\x88")
        PARAMETER(FLOATS("K\1K\2\x85K\1\x85"), "\x89") FLOATS("K\0K\6\x85K\1\x85")
            PARAMETER(UNTYPED("\x18", "K\0K\1\x85K\1\x85", "float8_e5m2"), "\x88") "t.";
    struct object object, again;
    struct buffer stream;
    OPEN(&object, pickle);
    save_again(object.node, &again, &stream);
    assert_same_views(object.node, again.node);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(tensor_of(dcp_state_at(again.node, i))->parameter, i != 2);
    assert_true(tensor_of(dcp_state_at(again.node, 3))->requires_grad);
    object_close(&again);
    object_close(&object);
    buffer_free(&stream);

    static unsigned char elements[3];
    dcp_state *root = dcp_state_new();
    dcp_tensor tensor = {.dtype = DCP_F8_E5M2,
                         .ndim = 1,
                         .global_shape = {3},
                         .requires_grad = true,
                         .data = elements};
    dcp_state *tuple = dcp_state_tuple(root, "t");
    dcp_state_tensor(tuple, NULL, &tensor);
    save_again(tuple, &again, &stream);
    assert_int_equal(count_in_pickle(&stream, "_rebuild_parameter"), 1);
    assert_true(tensor_of(dcp_state_at(again.node, 0))->requires_grad);
    object_close(&again);
    buffer_free(&stream);
    dcp_state_free(root);
}

/* Without elements a tensor may claim to begin anywhere. */
static void what_begins_outside_has_no_storage(void **state)
{
    (void)state;
    static const char pickle[] = "\x80\x02(" FLOATS("J\xff\xff\xff\x7fK\0\x85K\1\x85") "t.";
    struct object object, again;
    struct buffer stream;
    OPEN(&object, pickle);
    assert_null(chunk_of(object_child(&object, 0))->block);
    save_again(object.node, &again, &stream);
    assert_int_equal(storage_bytes(&stream, "data/0"), 0);
    assert_int_equal(tensor_of(dcp_state_at(again.node, 0))->global_shape[0], 0);
    object_close(&again);
    object_close(&object);
    buffer_free(&stream);
}

/* Repeating elements takes no memory, and is believed up to a limit all the same. */
static void absurd_shapes_are_refused(void **state)
{
    (void)state;
    const struct record record = {"archive/data/0", floats, sizeof floats, false};
    static const struct text cases[] = {
        TEXT("\x80\x02(" FLOATS("K\0J\0\0\0\1\x85K\0\x85") "t."),
        TEXT("\x80\x02(" FLOATS("K\0J\1\0\0\1\x85K\0\x85") "t."),
        TEXT("\x80\x02(" FLOATS("K\5K\2\x85K\1\x85") "t."),
        TEXT("\x80\x02(" FLOATS("K\0K\2K\3\x86K\4K\1\x86") "t."),
        TEXT("\x80\x02(" FLOATS("K\0K\2\x85\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85") "t."),
        TEXT("\x80\x02(" TYPED("FloatStorage", "\7", "K\0K\6\x85K\1\x85") "t."),
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct object object;
        assert_int_equal(object_open_pickle(&object, cases[i].bytes, cases[i].size, &record, 1),
                         i == 0 ? DCP_OK : DCP_ERR_FORMAT);
        object_close(&object);
    }
}

static void copies_share_as_what_they_are_copies_of(void **state)
{
    (void)state;
    /* The last one is the first one again. */
    static const char pickle[] =
        "\x80\x02(" FLOATS("K\0K\2\x85K\1\x85") "q\0" FLOATS("K\1K\2\x85K\1\x85") "h\0t.";
    struct object object, again;
    struct buffer stream;
    dcp_state *copy;
    OPEN(&object, pickle);
    assert_ptr_equal(object_child(&object, 2), object_child(&object, 0));
    assert_int_equal(node_copy(object.pool, object.node, &copy), DCP_OK);
    assert_same_views(object.node, copy);
    assert_ptr_equal(dcp_state_at(copy, 2), dcp_state_at(copy, 0));
    assert_ptr_not_equal(dcp_state_at(copy, 1), dcp_state_at(copy, 0));
    save_again(copy, &again, &stream);
    assert_same_views(object.node, again.node);
    assert_ptr_equal(dcp_state_at(again.node, 2), dcp_state_at(again.node, 0));
    assert_int_equal(storage_bytes(&stream, "data/1"), -1);
    object_close(&again);
    object_close(&object);
    buffer_free(&stream);
}

/* What of the block is not where the chunk says is written by itself. */
static void chunks_outside_of_their_block_have_storages_of_their_own(void **state)
{
    (void)state;
    static float mine[] = {9, 8, 7, 6, 5, 4, 3};
    for (int change = 0; change < 4; change++) {
        struct object object, again;
        struct buffer stream;
        OPEN(&object, views);
        struct state_chunk *chunk = &object_child(&object, 4)->as.tensor->chunks[0];
        if (change == 0)
            chunk->data = mine;
        if (change == 1)
            chunk->strides[0] = -1;
        if (change == 2)
            chunk->strides[0] = INT64_MIN;
        if (change == 3)
            ((struct state_block *)(uintptr_t)chunk->block)->size = 16;
        if (change == 2) /* only looked at where there are elements */
            chunk->sizes[0] = object_child(&object, 4)->as.tensor->global_shape[0] = 1;
        buffer_init(&stream, 0);
        assert_int_equal(item_encode_stream(object_child(&object, 4), &stream), DCP_OK);
        assert_int_equal(object_open(&again, byte_source_memory(stream.data, stream.size)), DCP_OK);
        assert_int_equal(chunk_of(again.node)->strides[0], 1);
        assert_int_equal(bytes_before(again.node), 0);
        assert_int_equal(chunk_of(again.node)->block->size, change == 2 ? 4 : 12);
        assert_true(*(const float *)chunk_of(again.node)->data == (change == 0 ? 9 : 3));
        object_close(&again);
        object_close(&object);
        buffer_free(&stream);
    }
}

/* Whether memory of callers is a part of other memory is not known. */
static void memory_of_callers_is_written_by_itself(void **state)
{
    (void)state;
    static float mine[] = {1, 2, 3, 4};
    dcp_state *root = dcp_state_new();
    dcp_state *tuple = dcp_state_tuple(root, "t");
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .global_shape = {4}, .data = mine};
    struct object again;
    struct buffer stream;
    dcp_state_tensor(tuple, NULL, &tensor);
    tensor.global_shape[0] = tensor.strides[0] = 2;
    tensor.strided = true;
    dcp_state_tensor(tuple, NULL, &tensor);
    save_again(tuple, &again, &stream);
    assert_int_equal(storage_bytes(&stream, "data/0"), 16);
    assert_int_equal(storage_bytes(&stream, "data/1"), 8);
    static const float expected[] = {1, 3};
    assert_memory_equal(chunk_of(dcp_state_at(again.node, 1))->data, expected, sizeof expected);
    object_close(&again);
    buffer_free(&stream);
    dcp_state_free(root);
}

/* Each tensor is there twice, as one object. */
static void many_blocks_and_tensors_are_distinguished(void **state)
{
    (void)state;
    enum { TENSORS = 300 };
    static const dcp_device host;
    dcp_state *root = dcp_state_new();
    dcp_state *tuple = dcp_state_tuple(root, "t");
    dcp_tensor tensor = {.dtype = DCP_I64, .ndim = 0};
    struct object again;
    struct buffer stream;
    for (int64_t i = 0; i < TENSORS; i++) {
        struct state_block *block;
        assert_int_equal(state_block_new(root->pool, &host, sizeof i, &block), DCP_OK);
        memcpy(block->data, &i, sizeof i);
        tensor.data = block->data;
        dcp_state *node = node_tensor(root->pool, &tensor, block);
        assert_int_equal(node_append(root->pool, tuple, NULL, node), DCP_OK);
        assert_int_equal(node_append(root->pool, tuple, NULL, node), DCP_OK);
    }
    save_again(tuple, &again, &stream);
    assert_same_views(tuple, again.node);
    for (size_t i = 0; i < TENSORS; i++)
        assert_ptr_equal(dcp_state_at(again.node, 2 * i), dcp_state_at(again.node, 2 * i + 1));
    object_close(&again);
    buffer_free(&stream);
    dcp_state_free(root);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct zip_builder builder;
    zip_builder_init(&builder);
    zip_builder_add_container(&builder, views, sizeof views - 1);
    zip_builder_add_deflated(&builder, "archive/data/0", floats, sizeof floats);
    zip_builder_finish(&builder);
    struct byte_source source = byte_source_memory(builder.out.data, builder.out.size);
    size_t failed = 0;
    for (;; failed++) {
        struct object object;
        struct buffer stream;
        dcp_state *copy;
        failing_allocator_install(failed);
        buffer_init(&stream, 0);
        dcp_status status = object_open(&object, source);
        if (status == DCP_OK)
            status = node_copy(object.pool, object.node, &copy);
        if (status == DCP_OK)
            status = item_encode_stream(copy, &stream);
        buffer_free(&stream);
        object_close(&object);
        failing_allocator_remove();
        if (status == DCP_OK)
            break;
        assert_int_equal(status, DCP_ERR_NO_MEMORY);
    }
    assert_true(failed > 25);
    zip_builder_free(&builder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_of_a_storage_share_a_block),
        cmocka_unit_test(views_are_saved_as_they_are),
        cmocka_unit_test(tensors_of_several_dtypes_share_a_storage),
        cmocka_unit_test(storages_that_are_no_number_of_elements_count_bytes),
        cmocka_unit_test(other_byte_orders_share_by_width),
        cmocka_unit_test(flagged_views_leave_their_storage),
        cmocka_unit_test(parameters_stay_parameters),
        cmocka_unit_test(what_begins_outside_has_no_storage),
        cmocka_unit_test(absurd_shapes_are_refused),
        cmocka_unit_test(copies_share_as_what_they_are_copies_of),
        cmocka_unit_test(chunks_outside_of_their_block_have_storages_of_their_own),
        cmocka_unit_test(many_blocks_and_tensors_are_distinguished),
        cmocka_unit_test(memory_of_callers_is_written_by_itself),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
