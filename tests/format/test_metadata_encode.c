/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expected_metadata.h"
#include "failing_allocator.h"
#include "fixture.h"
#include "format/metadata/metadata_codec.h"
#include "format/metadata/metadata_trailer.h"
#include "pickle_assembler.h"
#include "state/node.h"

/* ---- what PyTorch wrote, decoded and encoded again ---- */

static void check_round_trip(const char *name)
{
    struct fixture fixture;
    struct metadata metadata, again;
    struct buffer first, second;
    char path[512];
    fixture_open(&fixture, name);
    snprintf(path, sizeof path, "%s/%s/.metadata", name,
             cJSON_GetObjectItem(fixture.expected, "checkpoint")->valuestring);
    struct bytes bytes = fixture_file(path);
    assert_int_equal(metadata_decode(bytes.data, bytes.size, &metadata), DCP_OK);
    bytes_free(&bytes);

    buffer_init(&first, 0);
    assert_int_equal(metadata_encode(&metadata, &first), DCP_OK);
    if (metadata_decode(first.data, first.size, &again) != DCP_OK)
        fail_msg("%s: %s", name, dcp_error_message());
    check_expected_metadata(&again, fixture.expected);
    assert_string_equal(again.save_id, metadata.save_id);
    assert_int_equal(again.has_paths, metadata.has_paths);

    buffer_init(&second, 0);
    assert_int_equal(metadata_encode(&again, &second), DCP_OK);
    assert_int_equal(second.size, first.size);
    assert_memory_equal(second.data, first.data, first.size);
    buffer_free(&first);
    buffer_free(&second);
    metadata_free(&again);
    metadata_free(&metadata);
    fixture_close(&fixture);
}

static void keeps_everything_of_reference_checkpoints(void **state)
{
    (void)state;
    static const char *const names[] = {"basic",       "dtypes",        "many_items",
                                        "mesh2d_w4",   "nesting",       "no_flatten",
                                        "shapes",      "uneven_w4",     "zstd",
                                        "threads_w2",  "fsdp2_tp_w4",   "torch_2.0.1_single",
                                        "ddp_like_w2", "meta_protocol2"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        check_round_trip(names[i]);
}

/* ---- exact bytes ---- */

struct sample {
    struct metadata metadata;
    struct metadata_entry entries[2];
    struct metadata_piece pieces[2];
    dcp_path_part path[3];
    const char *files[2];
    int64_t numbers[4];
};

static void sample_make(struct sample *sample)
{
    *sample = (struct sample){.numbers = {0, 4, 0, 0},
                              .path = {{.key = "model"}, {.key = "w"}, {.position = 3}},
                              .files = {"__0_0.distcp", "__1_0.distcp"}};
    sample->pieces[0] = (struct metadata_piece){.offsets = sample->numbers,
                                                .sizes = sample->numbers + 1,
                                                .file = 1,
                                                .offset = 1000,
                                                .length = 1577};
    sample->pieces[1] = (struct metadata_piece){.length = 1000, .zstd = true};
    sample->entries[0] = (struct metadata_entry){.name = "model.w",
                                                 .path = sample->path,
                                                 .path_length = 2,
                                                 .is_tensor = true,
                                                 .requires_grad = true,
                                                 .dtype = DCP_BF16,
                                                 .ndim = 1,
                                                 .global_shape = sample->numbers + 1,
                                                 .pieces = sample->pieces,
                                                 .piece_count = 1};
    sample->entries[1] = (struct metadata_entry){.name = "3",
                                                 .path = sample->path + 2,
                                                 .path_length = 1,
                                                 .pieces = sample->pieces + 1,
                                                 .piece_count = 1};
    metadata_init(&sample->metadata);
    sample->metadata.entries = sample->entries;
    sample->metadata.count = 2;
    sample->metadata.files = sample->files;
    sample->metadata.file_count = 2;
    sample->metadata.has_paths = true;
    sample->metadata.save_id = "abc";
}

#define TEXT(text)   "SHORT_BINUNICODE '" text "' "
#define SHARED(text) TEXT(text) "MEMOIZE "
#define GET(number)  "BINGET " #number " "

/* One line for each value that others refer to, with its number. */
/* clang-format off */
static const char sample_script[] =
    "PROTO 4 " SHARED("torch.distributed.checkpoint.metadata") /* 0 */
    TEXT("Metadata") "STACK_GLOBAL EMPTY_TUPLE NEWOBJ EMPTY_DICT MARK "
    TEXT("state_dict_metadata") "EMPTY_DICT MARK " SHARED("model.w") /* 1 */
    GET(0) TEXT("TensorStorageMetadata") "STACK_GLOBAL MEMOIZE EMPTY_TUPLE NEWOBJ EMPTY_DICT "
    "MARK " SHARED("properties") /* 3 */
    GET(0) TEXT("TensorProperties") "STACK_GLOBAL MEMOIZE EMPTY_TUPLE NEWOBJ MARK "
    SHARED("torch") /* 5 */
    TEXT("bfloat16") "STACK_GLOBAL MEMOIZE " SHARED("torch.serialization") /* 7 */
    TEXT("_get_layout") "STACK_GLOBAL MEMOIZE " SHARED("torch.strided") /* 9 */
    "TUPLE1 REDUCE MEMOIZE NEWTRUE " GET(0) TEXT("_MEM_FORMAT_ENCODING") /* 10 */
    "STACK_GLOBAL MEMOIZE BININT1 0 TUPLE1 REDUCE MEMOIZE NEWFALSE " /* 12 */
    "TUPLE BUILD " SHARED("size") /* 13 */
    GET(5) TEXT("Size") "STACK_GLOBAL MEMOIZE BININT1 4 TUPLE1 TUPLE1 REDUCE MEMOIZE " /* 15 */
    SHARED("chunks") /* 16 */
    "EMPTY_LIST MARK " GET(0) TEXT("ChunkStorageMetadata")
    "STACK_GLOBAL MEMOIZE EMPTY_TUPLE NEWOBJ EMPTY_DICT " "MARK " SHARED("offsets") GET(14)
    "BININT1 0 TUPLE1 TUPLE1 REDUCE MEMOIZE " /* 19 */
    SHARED("sizes") GET(15) /* 20 */
    "SETITEMS BUILD APPENDS SETITEMS BUILD " SHARED("3") /* 21 */
    GET(0) TEXT("BytesStorageMetadata") "STACK_GLOBAL MEMOIZE EMPTY_TUPLE NEWOBJ SETITEMS "
    TEXT("planner_data") "EMPTY_DICT MARK " GET(1) SHARED("model") SHARED("w") "TUPLE2 " /* 23, 24 */
    GET(21) "BININT1 3 TUPLE1 SETITEMS " TEXT("storage_data") "EMPTY_DICT MARK " GET(0)
    TEXT("MetadataIndex") "STACK_GLOBAL MEMOIZE EMPTY_TUPLE NEWOBJ EMPTY_DICT MARK " /* 25 */
    SHARED("fqn") GET(1) SHARED("index") "BININT1 0 " SHARED("offset") /* 28 */
    GET(19) "SETITEMS BUILD "
    SHARED("torch.distributed.checkpoint.filesystem") /* 29 */
    TEXT("_StorageInfo") "STACK_GLOBAL MEMOIZE EMPTY_TUPLE NEWOBJ EMPTY_DICT MARK " /* 30 */
    SHARED("relative_path") SHARED("__1_0.distcp") GET(28) "BININT2 1000 " SHARED("length")
    "BININT2 1577 SETITEMS BUILD " /* 33 */
    GET(25) "EMPTY_TUPLE NEWOBJ EMPTY_DICT MARK " GET(26) GET(21) GET(27) "NONE SETITEMS BUILD "
    GET(30) "EMPTY_TUPLE NEWOBJ EMPTY_DICT MARK " GET(31) SHARED("__0_0.distcp") GET(28)
    "BININT1 0 " GET(33) "BININT2 1000 " SHARED("transform_descriptors") "EMPTY_LIST "
    SHARED("stream.zstd/1") "APPEND SETITEMS BUILD SETITEMS " TEXT("storage_meta") GET(0)
    TEXT("StorageMeta") "STACK_GLOBAL EMPTY_TUPLE NEWOBJ EMPTY_DICT " "MARK "
    TEXT("checkpoint_id") "NONE " TEXT("save_id") TEXT("abc") TEXT("load_id") "NONE "
    TEXT("modules") "EMPTY_LIST SETITEMS BUILD " TEXT("version") TEXT("1.0.0")
    "SETITEMS BUILD STOP";
/* clang-format on */

static void writes_what_pytorch_would(void **state)
{
    (void)state;
    struct sample sample;
    struct buffer out, expected;
    sample_make(&sample);
    buffer_init(&out, 0);
    assert_int_equal(metadata_encode(&sample.metadata, &out), DCP_OK);
    pickle_assemble(&expected, sample_script);
    assert_int_equal(metadata_trailer_append(&sample.metadata, 0, &expected), DCP_OK);
    for (size_t i = 0; i < out.size && i < expected.size; i++)
        if (out.data[i] != expected.data[i])
            fail_msg("byte %zu: 0x%02x, expected 0x%02x", i, out.data[i], expected.data[i]);
    assert_int_equal(out.size, expected.size);
    buffer_free(&expected);
    buffer_free(&out);
}

/* More than there is room for when sizes are shared. */
enum { TENSORS = 600 };

/* Encodes and decodes tensors of so many shapes, two pieces each, and returns how many times the
 * pickle has the numbers of a size. */
static size_t count_sizes(int shapes)
{
    static int64_t numbers[TENSORS][8]; /* shape, offsets, offsets of the other piece, sizes */
    static struct metadata_entry entries[TENSORS];
    static struct metadata_piece pieces[TENSORS][2];
    static char names[TENSORS][16];
    static const char *files[] = {"__0_0.distcp"};
    struct metadata metadata, again;
    struct buffer out;
    size_t sizes = 0;
    metadata_init(&metadata);
    for (int i = 0; i < TENSORS; i++) {
        int64_t half = 300 + i % shapes, *at = numbers[i];
        memcpy(at, (int64_t[]){2 * half, 301, 0, 0, half, 0, half, 301}, sizeof *numbers);
        for (int k = 0; k < 2; k++)
            pieces[i][k] = (struct metadata_piece){
                .offsets = at + 2 + 2 * k, .sizes = at + 6, .length = 4000000};
        snprintf(names[i], sizeof names[i], "t%d", i);
        entries[i] = (struct metadata_entry){.name = names[i],
                                             .is_tensor = true,
                                             .dtype = DCP_F32,
                                             .ndim = 2,
                                             .global_shape = at,
                                             .pieces = pieces[i],
                                             .piece_count = 2};
    }
    metadata.entries = entries;
    metadata.count = TENSORS;
    metadata.files = files;
    metadata.file_count = 1;
    buffer_init(&out, 0);
    assert_int_equal(metadata_encode(&metadata, &out), DCP_OK);
    /* BININT2 301, TUPLE2: the end of shapes and sizes */
    for (size_t i = 0; i + 4 <= out.size; i++)
        sizes += memcmp(out.data + i, "M\x2d\x01\x86", 4) == 0;
    assert_int_equal(metadata_decode(out.data, out.size, &again), DCP_OK);
    assert_int_equal(again.count, TENSORS);
    for (int i = 0; i < TENSORS; i++) {
        const struct metadata_piece *piece = again.entries[i].pieces;
        assert_memory_equal(again.entries[i].global_shape, numbers[i], 2 * sizeof(int64_t));
        for (int k = 0; k < 2; k++) {
            assert_memory_equal(piece[k].offsets, pieces[i][k].offsets, 2 * sizeof(int64_t));
            assert_memory_equal(piece[k].sizes, pieces[i][k].sizes, 2 * sizeof(int64_t));
        }
    }
    metadata_free(&again);
    buffer_free(&out);
    return sizes;
}

static void shares_sizes_that_occur_again(void **state)
{
    (void)state;
    assert_int_equal(count_sizes(1), 2);
    assert_in_range(count_sizes(10), 20, 400);
    /* No two tensors have the same shape, but the pieces of one share their sizes. */
    assert_in_range(count_sizes(TENSORS), 3 * TENSORS / 2, 3 * TENSORS);
}

static void appends_to_what_is_there(void **state)
{
    (void)state;
    struct sample sample;
    struct buffer out;
    sample_make(&sample);
    buffer_init(&out, 0);
    buffer_append_text(&out, "x", 1);
    assert_int_equal(metadata_encode(&sample.metadata, &out), DCP_OK);
    assert_memory_equal(out.data, "\1x\x80\4", 4);
    buffer_free(&out);
}

static void writes_none_for_what_is_unknown(void **state)
{
    (void)state;
    struct sample sample;
    struct buffer out;
    struct metadata again;
    sample_make(&sample);
    sample.metadata.save_id = "";
    sample.metadata.has_paths = false;
    buffer_init(&out, 0);
    assert_int_equal(metadata_encode(&sample.metadata, &out), DCP_OK);
    assert_int_equal(metadata_decode(out.data, out.size, &again), DCP_OK);
    assert_false(again.has_paths);
    assert_string_equal(again.save_id, "");
    assert_int_equal(metadata_find(&again, "model.w")->path_length, 1);
    metadata_free(&again);
    buffer_free(&out);
}

static void writes_what_planners_stored_in_the_place_of_paths(void **state)
{
    (void)state;
    struct sample sample;
    struct metadata again;
    struct buffer out;
    sample_make(&sample);
    dcp_state *root = dcp_state_new();
    dcp_state *data = dcp_state_list(root, "data");
    dcp_state *shared = dcp_state_dict(data, NULL);
    assert_int_equal(dcp_state_string(shared, "rank", "0"), DCP_OK);
    /* Python 3's name of a builtin: others are not looked up from protocol 3 on. */
    dcp_state *set = node_new(root->pool, DCP_KIND_SET);
    assert_int_equal(node_append(root->pool, data, NULL, set), DCP_OK);
    sample.metadata.planner_data = data;
    buffer_init(&out, 0);
    assert_int_equal(metadata_encode(&sample.metadata, &out), DCP_OK);
    assert_non_null(memmem(out.data, out.size, "builtins", 8));
    assert_null(memmem(out.data, out.size, "__builtin__", 11));
    assert_int_equal(metadata_decode(out.data, out.size, &again), DCP_OK);
    assert_int_equal(again.count, 2);
    assert_string_equal(again.save_id, "abc");
    assert_false(again.has_paths);
    metadata_free(&again);

    dcp_tensor tensor = {.dtype = DCP_F32, .data = &out};
    assert_non_null(dcp_state_tensor(data, NULL, &tensor));
    assert_int_equal(metadata_encode(&sample.metadata, &out), DCP_ERR_UNSUPPORTED);
    buffer_free(&out);
    dcp_state_free(root);
}

/* ---- many of everything ---- */

enum { MANY = 2500, DIMENSIONS = 5 };

static void writes_long_containers_in_batches(void **state)
{
    (void)state;
    struct metadata_piece *pieces = calloc(MANY, sizeof *pieces);
    int64_t(*boxes)[2 * DIMENSIONS] = calloc(MANY, sizeof *boxes);
    int64_t shape[DIMENSIONS] = {MANY, 1, 1, 1, 1};
    const char *file = "f";
    dcp_path_part path = {.key = "w"};
    struct metadata_entry entry = {.name = "w",
                                   .path = &path,
                                   .path_length = 1,
                                   .is_tensor = true,
                                   .dtype = DCP_U8,
                                   .ndim = DIMENSIONS,
                                   .global_shape = shape,
                                   .pieces = pieces,
                                   .piece_count = MANY};
    struct metadata metadata, again;
    struct buffer out;
    assert_true(pieces != NULL && boxes != NULL);
    for (int64_t i = 0; i < MANY; i++) {
        boxes[i][0] = i;
        for (size_t k = DIMENSIONS; k < 2 * DIMENSIONS; k++)
            boxes[i][k] = 1;
        pieces[i] = (struct metadata_piece){.offsets = boxes[i],
                                            .sizes = boxes[i] + DIMENSIONS,
                                            .offset = (uint64_t)i << 33,
                                            .length = (uint64_t)i + 1};
    }
    metadata_init(&metadata);
    metadata.entries = &entry;
    metadata.count = 1;
    metadata.files = &file;
    metadata.file_count = 1;
    buffer_init(&out, 0);
    assert_int_equal(metadata_encode(&metadata, &out), DCP_OK);
    assert_int_equal(metadata_decode(out.data, out.size, &again), DCP_OK);
    assert_int_equal(again.entries[0].piece_count, MANY);
    for (size_t i = 0; i < MANY; i++) {
        const struct metadata_piece *piece = &again.entries[0].pieces[i];
        assert_memory_equal(piece->offsets, boxes[i], DIMENSIONS * sizeof(int64_t));
        assert_int_equal(piece->offset, (uint64_t)i << 33);
        assert_int_equal(piece->length, i + 1);
    }
    metadata_free(&again);
    buffer_free(&out);
    free(boxes);
    free(pieces);
}

/* ---- errors ---- */

static void check_refused(const struct sample *sample, dcp_status expected, const char *message)
{
    struct buffer out;
    buffer_init(&out, 0);
    assert_int_equal(metadata_encode(&sample->metadata, &out), expected);
    assert_non_null(strstr(dcp_error_message(), message));
    buffer_free(&out);
}

static void refuses_what_pytorch_could_not_read(void **state)
{
    (void)state;
    struct sample sample;
    sample_make(&sample);
    sample.entries[0].name = "\xff";
    check_refused(&sample, DCP_ERR_ARGUMENT, "is not valid UTF-8");
    sample_make(&sample);
    sample.path[1].key = "\xed\xa0\x80";
    check_refused(&sample, DCP_ERR_ARGUMENT, "is not valid UTF-8");
    sample_make(&sample);
    sample.files[0] = "\xc0";
    check_refused(&sample, DCP_ERR_ARGUMENT, "is not valid UTF-8");
    sample_make(&sample);
    sample.entries[0].dtype = DCP_DTYPE_NONE;
    check_refused(&sample, DCP_ERR_ARGUMENT, "\"model.w\" has no dtype");
    sample_make(&sample);
    sample.pieces[0].encoding = PIECE_RAW;
    check_refused(&sample, DCP_ERR_UNSUPPORTED, "\"model.w\" is not stored as streams");
}

static void reports_every_failed_allocation(void **state)
{
    (void)state;
    struct sample sample;
    sample_make(&sample);
    dcp_status status = DCP_ERR_NO_MEMORY;
    for (size_t n = 0; status != DCP_OK; n++) {
        struct buffer out;
        failing_allocator_install(n);
        buffer_init(&out, 0);
        status = metadata_encode(&sample.metadata, &out);
        if (status != DCP_OK)
            assert_int_equal(status, DCP_ERR_NO_MEMORY);
        buffer_free(&out);
        assert_true(failing_allocator_remove() >= n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_everything_of_reference_checkpoints),
        cmocka_unit_test(writes_what_pytorch_would),
        cmocka_unit_test(shares_sizes_that_occur_again),
        cmocka_unit_test(appends_to_what_is_there),
        cmocka_unit_test(writes_none_for_what_is_unknown),
        cmocka_unit_test(writes_what_planners_stored_in_the_place_of_paths),
        cmocka_unit_test(writes_long_containers_in_batches),
        cmocka_unit_test(refuses_what_pytorch_could_not_read),
        cmocka_unit_test(reports_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
