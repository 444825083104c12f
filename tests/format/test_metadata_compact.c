/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "failing_allocator.h"
#include "fixture.h"
#include "format/metadata/metadata_codec.h"
#include "format/metadata/metadata_compact.h"

/* Shards of tensors, and objects under names that are not their paths. */
static void decode(struct metadata *metadata)
{
    struct bytes bytes = fixture_file("fsdp2_tp_w4/ckpt/.metadata");
    assert_int_equal(metadata_decode(bytes.data, bytes.size, metadata), DCP_OK);
    bytes_free(&bytes);
}

static void describe(struct metadata *metadata)
{
    static const char *const modules[] = {"model", "optimizer"};
    metadata->checkpoint_id = "step_1000";
    metadata->load_id = "";
    metadata->modules = modules;
    metadata->module_count = 2;
    static const struct extra_file extras[] = {
        {.name = "config.yaml", .file = "__0.g0.extra.config.yaml", .size = 0, .digest = 0},
        {.name = "rng", .file = "__3.g12.extra.rng", .size = 7, .digest = UINT64_MAX}};
    metadata->extra_files = extras;
    metadata->extra_file_count = 2;
}

static void append(const struct metadata *metadata, struct buffer *out)
{
    buffer_init(out, 0);
    assert_int_equal(metadata_compact_append(metadata, out), DCP_OK);
}

static dcp_status try(const void *bytes, size_t size)
{
    struct metadata metadata;
    dcp_status status = metadata_compact_read(bytes, size, &metadata);
    if (status != DCP_OK)
        assert_int_equal(metadata.count, 0);
    metadata_free(&metadata);
    return status;
}

/* The pickle holds all there is. */
static void gives_back_what_it_was_given(void **state)
{
    (void)state;
    for (int described = 0; described < 2; described++) {
        struct metadata before, after;
        struct buffer message, first, second;
        decode(&before);
        if (described)
            describe(&before);
        assert_true(metadata_fits_compact(&before));
        append(&before, &message);
        assert_int_equal(metadata_compact_read(message.data, message.size, &after), DCP_OK);
        buffer_init(&first, 0);
        buffer_init(&second, 0);
        assert_int_equal(metadata_encode(&before, &first), DCP_OK);
        assert_true(message.size < first.size);
        buffer_free(&message);
        assert_int_equal(metadata_encode(&after, &second), DCP_OK);
        assert_int_equal(first.size, second.size);
        assert_memory_equal(first.data, second.data, first.size);
        assert_int_equal(before.has_paths, after.has_paths);
        assert_non_null(metadata_find(&after, before.entries[before.count - 1].name));
        buffer_free(&first);
        buffer_free(&second);
        metadata_free(&before);
        metadata_free(&after);
    }
}

static void knows_what_it_has_no_room_for(void **state)
{
    (void)state;
    struct metadata metadata;
    decode(&metadata);
    metadata.member_count = 1;
    assert_false(metadata_fits_compact(&metadata));
    metadata.member_count = 0;
    metadata.replica_count = 1;
    assert_false(metadata_fits_compact(&metadata));
    metadata.replica_count = 0;
    dcp_state *planned = dcp_state_new();
    metadata.planner_data = planned;
    assert_false(metadata_fits_compact(&metadata));
    dcp_state_free(planned);
    metadata_free(&metadata);
}

/* Cut, longer, and with each byte replaced: an error or other metadata, never anything worse. */
static void survives_any_message(void **state)
{
    (void)state;
    struct metadata metadata;
    struct buffer message;
    decode(&metadata);
    describe(&metadata);
    append(&metadata, &message);
    for (size_t size = 0; size < message.size; size += size < 200 ? 1 : 37)
        assert_int_not_equal(try(message.data, size), DCP_OK);
    for (size_t at = 0; at < message.size; at++) {
        static const unsigned char values[] = {0, 1, '/', 0x80, 0xff};
        unsigned char before = message.data[at];
        for (size_t i = 0; i < sizeof values; i++) {
            message.data[at] = values[i];
            dcp_status status = try(message.data, message.size);
            assert_true(status == DCP_OK || status == DCP_ERR_FORMAT ||
                        status == DCP_ERR_DUPLICATE || status == DCP_ERR_COVERAGE ||
                        status == DCP_ERR_OVERLAP);
        }
        message.data[at] = before;
    }
    buffer_append_u8(&message, 0);
    assert_int_equal(try(message.data, message.size), DCP_ERR_FORMAT);
    buffer_free(&message);
    metadata_free(&metadata);
}

/* A tensor of a .pt file, transposed and deflated, an object in memory, and the file's size. */
struct described {
    int64_t zeros[2], sizes[2], strides[2];
    struct tensor_view view;
    struct metadata_piece pieces[2];
    dcp_path_part paths[2];
    struct metadata_entry entries[2];
    const char *files[1];
    uint64_t file_sizes[1];
    struct metadata metadata;
};

static void describe_file(struct described *made)
{
    *made = (struct described){.sizes = {3, 5}, .strides = {1, 3}, .file_sizes = {4711}};
    made->files[0] = "ckpt.pt";
    made->view = (struct tensor_view){.dtype = DCP_BF16,
                                      .ndim = 2,
                                      .sizes = made->sizes,
                                      .strides = made->strides,
                                      .storage_offset = 7,
                                      .negative = true,
                                      .deflated = true,
                                      .has_crc = true,
                                      .crc = UINT32_MAX,
                                      .data_offset = 64,
                                      .data_length = 20,
                                      .storage_bytes = 2 * (7 + 15)};
    made->pieces[0] = (struct metadata_piece){.offsets = made->zeros,
                                              .sizes = made->sizes,
                                              .encoding = PIECE_VIEW,
                                              .offset = 64,
                                              .length = 20,
                                              .view = &made->view};
    made->pieces[1] =
        (struct metadata_piece){.encoding = PIECE_HELD, .length = 6, .object = "stream"};
    static const char *const names[] = {"weight", "step"};
    for (int i = 0; i < 2; i++) {
        made->paths[i] = (dcp_path_part){.key = names[i]};
        made->entries[i] = (struct metadata_entry){.name = names[i],
                                                   .path = &made->paths[i],
                                                   .path_length = 1,
                                                   .pieces = &made->pieces[i],
                                                   .piece_count = 1};
    }
    made->entries[0].is_tensor = true;
    made->entries[0].dtype = DCP_BF16;
    made->entries[0].ndim = 2;
    made->entries[0].global_shape = made->sizes;
    metadata_init(&made->metadata);
    made->metadata.entries = made->entries;
    made->metadata.count = 2;
    made->metadata.files = made->files;
    made->metadata.file_count = 1;
    made->metadata.file_sizes = made->file_sizes;
    made->metadata.save_id = "";
}

static void gives_back_what_is_no_stream(void **state)
{
    (void)state;
    struct described made;
    struct metadata after;
    struct buffer message;
    describe_file(&made);
    append(&made.metadata, &message);
    assert_int_equal(metadata_compact_read(message.data, message.size, &after), DCP_OK);
    assert_int_equal(after.file_sizes[0], 4711);
    const struct metadata_piece *held = after.entries[1].pieces;
    assert_int_equal(held->encoding, PIECE_HELD);
    assert_int_equal(held->length, 6);
    assert_memory_equal(held->object, "stream", 6);
    const struct metadata_piece *piece = after.entries[0].pieces;
    assert_int_equal(piece->encoding, PIECE_VIEW);
    const struct tensor_view *view = piece->view;
    assert_memory_equal(view->sizes, made.sizes, sizeof made.sizes);
    assert_memory_equal(view->strides, made.strides, sizeof made.strides);
    assert_int_equal(view->dtype, DCP_BF16);
    assert_int_equal(view->storage_offset, 7);
    assert_true(view->negative && view->deflated && view->has_crc);
    assert_false(view->conjugate || view->swapped);
    assert_int_equal(view->crc, UINT32_MAX);
    assert_int_equal(view->data_offset, 64);
    assert_int_equal(view->data_length, 20);
    assert_int_equal(view->storage_bytes, made.view.storage_bytes);
    metadata_free(&after);
    for (size_t size = 0; size < message.size; size++)
        assert_int_not_equal(try(message.data, size), DCP_OK);
    buffer_free(&message);
}

static void refuse_described(struct described *made)
{
    struct buffer message;
    append(&made->metadata, &message);
    assert_int_equal(try(message.data, message.size), DCP_ERR_FORMAT);
    buffer_free(&message);
}

/* Elements beyond the storage, a storage beyond its bytes, encodings that are none or of others. */
static void refuses_views_of_more_than_there_is(void **state)
{
    (void)state;
    struct described made;
    describe_file(&made);
    made.view.storage_bytes--;
    refuse_described(&made);
    describe_file(&made);
    made.strides[1] = INT64_MAX;
    refuse_described(&made);
    describe_file(&made);
    made.view.deflated = false;
    refuse_described(&made);
    describe_file(&made);
    made.pieces[0].encoding = PIECE_HELD;
    made.pieces[0].object = "a tensor is no object";
    refuse_described(&made);
    describe_file(&made);
    made.pieces[1].zstd = true;
    refuse_described(&made);
    describe_file(&made);
    made.pieces[0].file = 1;
    refuse_described(&made);
}

/* The tensor as 15 elements of one of 4 x 2 x 3, from its element 9 on. */
static void describe_range(struct described *made, struct stream_range *range)
{
    static const int64_t sizes[] = {4, 2, 3};
    describe_file(made);
    *range = (struct stream_range){.ndim = 3, .sizes = sizes, .first = 9};
    made->pieces[0].encoding = PIECE_RANGE;
    made->pieces[0].view = NULL;
    made->pieces[0].range = range;
    made->pieces[0].length = 48;
}

static void gives_back_ranges_of_streams(void **state)
{
    (void)state;
    struct described made;
    struct stream_range range;
    struct metadata after;
    struct buffer message;
    for (int zstd = 0; zstd < 2; zstd++) {
        describe_range(&made, &range);
        made.pieces[0].zstd = zstd != 0;
        append(&made.metadata, &message);
        assert_int_equal(metadata_compact_read(message.data, message.size, &after), DCP_OK);
        const struct metadata_piece *piece = after.entries[0].pieces;
        assert_int_equal(piece->encoding, PIECE_RANGE);
        assert_int_equal(piece->zstd, zstd);
        assert_int_equal(piece->offset, 64);
        assert_int_equal(piece->length, 48);
        assert_null(piece->view);
        assert_int_equal(piece->range->ndim, 3);
        assert_memory_equal(piece->range->sizes, range.sizes, 3 * sizeof *range.sizes);
        assert_int_equal(piece->range->first, 9);
        metadata_free(&after);
        for (size_t size = 0; size < message.size; size++)
            assert_int_not_equal(try(message.data, size), DCP_OK);
        buffer_free(&message);
    }
}

/* Elements that the tensor in the stream has not, or that the stream has no bytes for. */
static void refuses_ranges_of_more_than_there_is(void **state)
{
    (void)state;
    static const int64_t endless[] = {INT64_MAX, 2, 3}, negative[] = {-4, 2, -3};
    struct described made;
    struct stream_range range;
    describe_range(&made, &range);
    range.first = 10;
    refuse_described(&made);
    describe_range(&made, &range);
    range.first = -1;
    refuse_described(&made);
    describe_range(&made, &range);
    range.sizes = endless;
    refuse_described(&made);
    describe_range(&made, &range);
    range.sizes = negative;
    refuse_described(&made);
    describe_range(&made, &range);
    made.pieces[0].length = 47;
    refuse_described(&made);
    describe_range(&made, &range);
    made.entries[0].is_tensor = false;
    refuse_described(&made);
}

static struct metadata_entry *tensor_of(const struct metadata *metadata)
{
    size_t tensor = 0;
    while (!metadata->entries[tensor].is_tensor || metadata->entries[tensor].piece_count < 2)
        tensor++;
    return &metadata->entries[tensor];
}

static void lead_outside(struct metadata *metadata)
{
    metadata->files[0] = "../secret";
}

static void drop_files(struct metadata *metadata)
{
    metadata->file_count = 0;
}

static void overflow(struct metadata *metadata)
{
    tensor_of(metadata)->pieces[0].offset = INT64_MAX;
}

static void shorten(struct metadata *metadata)
{
    tensor_of(metadata)->pieces[0].length = 1;
}

static void overlap(struct metadata *metadata)
{
    struct metadata_entry *entry = tensor_of(metadata);
    entry->pieces[1].offsets = entry->pieces[0].offsets;
}

static void lose_a_chunk(struct metadata *metadata)
{
    tensor_of(metadata)->piece_count--;
}

static void lose_the_dtype(struct metadata *metadata)
{
    tensor_of(metadata)->dtype = (dcp_dtype)99;
}

static void name_twice(struct metadata *metadata)
{
    metadata->entries[1].name = metadata->entries[0].name;
}

static void spoil_a_name(struct metadata *metadata)
{
    metadata->entries[0].name = "\xff";
}

static void lose_the_path(struct metadata *metadata)
{
    metadata->entries[0].path_length = 0;
}

static void refuses_what_decoding_would_refuse(void **state)
{
    (void)state;
    static void (*const spoils[])(struct metadata *) = {
        lead_outside, drop_files,     overflow,   shorten,      overlap,
        lose_a_chunk, lose_the_dtype, name_twice, spoil_a_name, lose_the_path};
    for (size_t i = 0; i < sizeof spoils / sizeof *spoils; i++) {
        struct metadata metadata;
        struct buffer message;
        decode(&metadata);
        spoils[i](&metadata);
        append(&metadata, &message);
        assert_int_not_equal(try(message.data, message.size), DCP_OK);
        buffer_free(&message);
        metadata_free(&metadata);
    }
}

static void reports_every_failed_allocation(void **state)
{
    (void)state;
    struct metadata metadata;
    struct buffer message;
    size_t asked = 1;
    decode(&metadata);
    append(&metadata, &message);
    for (size_t n = 0; n < asked; n++) {
        struct metadata after;
        struct buffer out;
        buffer_init(&out, 0);
        failing_allocator_install(n);
        dcp_status appended = metadata_compact_append(&metadata, &out);
        dcp_status read = metadata_compact_read(message.data, message.size, &after);
        buffer_free(&out);
        metadata_free(&after);
        asked = failing_allocator_remove();
        if (n < asked)
            assert_true(appended == DCP_ERR_NO_MEMORY || read == DCP_ERR_NO_MEMORY);
    }
    buffer_free(&message);
    metadata_free(&metadata);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_back_what_it_was_given),
        cmocka_unit_test(gives_back_what_is_no_stream),
        cmocka_unit_test(refuses_views_of_more_than_there_is),
        cmocka_unit_test(gives_back_ranges_of_streams),
        cmocka_unit_test(refuses_ranges_of_more_than_there_is),
        cmocka_unit_test(knows_what_it_has_no_room_for),
        cmocka_unit_test(survives_any_message),
        cmocka_unit_test(refuses_what_decoding_would_refuse),
        cmocka_unit_test(reports_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
