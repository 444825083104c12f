/* SPDX-License-Identifier: BSD-3-Clause */
/* The streams of PyTorch's shard files are found where its metadata says, without it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "failing_allocator.h"
#include "fixture.h"
#include "format/metadata/metadata_codec.h"
#include "format/streams/item.h"
#include "format/streams/stream_scan.h"
#include "stream_part.h"

struct scanned {
    struct arena arena;
    struct found_streams found;
};

static void scan(const void *bytes, size_t size, struct scanned *scanned)
{
    arena_init(&scanned->arena, 0);
    if (stream_scan(byte_source_memory(bytes, size), &scanned->arena, &scanned->found) != DCP_OK)
        fail_msg("%s", dcp_error_message());
}

static void scanned_free(struct scanned *scanned)
{
    memory_release(scanned->found.items);
    arena_free(&scanned->arena);
}

static const struct found_stream *find(const struct scanned *scanned, uint64_t offset)
{
    for (size_t i = 0; i < scanned->found.count; i++)
        if (scanned->found.items[i].offset == offset)
            return &scanned->found.items[i];
    return NULL;
}

/* ---- what PyTorch writes ---- */

static void expect_piece(const struct scanned *scanned, const struct metadata_entry *entry,
                         const struct metadata_piece *piece)
{
    const struct found_stream *stream = find(scanned, piece->offset);
    if (!stream || !stream->is_stream)
        fail_msg("%s: no stream at %llu", entry->name, (unsigned long long)piece->offset);
    assert_in_range(piece->length, stream->length, stream->length + stream->empty);
    assert_int_equal(stream->zstd, piece->zstd);
    assert_int_equal(stream->is_tensor, entry->is_tensor);
    if (entry->is_tensor)
        assert_int_equal(item_check_view(&stream->view, entry->dtype, entry->ndim, piece->sizes),
                         DCP_OK);
}

static size_t expect_file(const char *fixture, const struct metadata *metadata, uint32_t file)
{
    char path[256];
    struct scanned scanned;
    size_t pieces = 0;
    snprintf(path, sizeof path, "%s/ckpt/%s", fixture, metadata->files[file]);
    struct bytes bytes = fixture_file(path);
    scan(bytes.data, bytes.size, &scanned);
    for (size_t i = 0; i < metadata->count; i++)
        for (size_t p = 0; p < metadata->entries[i].piece_count; p++) {
            if (metadata->entries[i].pieces[p].file != file)
                continue;
            expect_piece(&scanned, &metadata->entries[i], &metadata->entries[i].pieces[p]);
            pieces++;
        }
    assert_int_equal(scanned.found.count, pieces);
    scanned_free(&scanned);
    bytes_free(&bytes);
    return pieces;
}

static size_t expect_fixture(const char *fixture)
{
    char path[256];
    struct metadata metadata;
    size_t pieces = 0;
    snprintf(path, sizeof path, "%s/ckpt/.metadata", fixture);
    struct bytes bytes = fixture_file(path);
    assert_int_equal(metadata_decode(bytes.data, bytes.size, &metadata), DCP_OK);
    for (uint32_t file = 0; file < metadata.file_count; file++)
        pieces += expect_file(fixture, &metadata, file);
    metadata_free(&metadata);
    bytes_free(&bytes);
    return pieces;
}

static void test_what_pytorch_writes(void **state)
{
    static const char *const fixtures[] = {"basic",
                                           "dtypes",
                                           "shapes",
                                           "layouts",
                                           "objects",
                                           "nesting",
                                           "no_flatten",
                                           "fsdp2_adam_w2",
                                           "fsdp2_tp_w4",
                                           "uneven_w4",
                                           "torch_2.0.1_sharded_w2",
                                           "torch_2.2.2_sharded_w2",
                                           "torch_2.15.0_sharded_w2"};
    (void)state;
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++)
        assert_true(expect_fixture(fixtures[i]) > 0);
}

static void test_compressed(void **state)
{
    (void)state;
    if (!DCP_HAVE_ZSTD)
        skip();
    assert_true(expect_fixture("many_items") > 300); /* one of them is compressed */
    assert_true(expect_fixture("zstd") > 0);
    assert_true(expect_fixture("zstd_w2") > 0);
    assert_true(expect_fixture("zstd_extra_frame") > 0);
}

/* ---- damaged files ---- */

/* All streams before the damage are found, and behind it the next ones as well. */
static void expect_around(const struct scanned *whole, const struct scanned *damaged, uint64_t from,
                          uint64_t end)
{
    for (size_t i = 0; i < whole->found.count; i++) {
        const struct found_stream *stream = &whole->found.items[i];
        bool hit = stream->offset < end && stream->offset + stream->length > from;
        const struct found_stream *found = find(damaged, stream->offset);
        if (!hit && (!found || !found->is_stream || found->length != stream->length))
            fail_msg("the stream at %llu is lost to damage from %llu",
                     (unsigned long long)stream->offset, (unsigned long long)from);
    }
}

/* Stretches follow each other, inside of the file. */
static void expect_order(const struct scanned *scanned, size_t size)
{
    uint64_t end = 0;
    for (size_t i = 0; i < scanned->found.count; i++) {
        const struct found_stream *stream = &scanned->found.items[i];
        assert_true(stream->offset >= end && stream->length > 0 && stream->length <= size);
        end = stream->offset + stream->length;
        assert_true(end <= size);
        assert_int_equal(stream->is_stream, stream->problem == NULL);
    }
}

static void test_cut(void **state)
{
    struct scanned whole, cut;
    (void)state;
    struct bytes bytes = fixture_file("basic/ckpt/__0_0.distcp");
    scan(bytes.data, bytes.size, &whole);
    for (size_t size = 0; size < bytes.size; size += 37) {
        scan(bytes.data, size, &cut);
        expect_order(&cut, size);
        expect_around(&whole, &cut, size, UINT64_MAX);
        scanned_free(&cut);
    }
    scanned_free(&whole);
    bytes_free(&bytes);
}

static void test_overwritten(void **state)
{
    struct scanned whole, damaged;
    enum { DAMAGE = 700 };
    (void)state;
    struct bytes bytes = fixture_file("basic/ckpt/__0_0.distcp");
    unsigned char kept[DAMAGE];
    scan(bytes.data, bytes.size, &whole);
    for (size_t at = 0; at + DAMAGE < bytes.size; at += 331) {
        memcpy(kept, bytes.data + at, DAMAGE);
        memset(bytes.data + at, 0x5a, DAMAGE);
        scan(bytes.data, bytes.size, &damaged);
        expect_order(&damaged, bytes.size);
        expect_around(&whole, &damaged, at, at + DAMAGE);
        memcpy(bytes.data + at, kept, DAMAGE);
        scanned_free(&damaged);
    }
    scanned_free(&whole);
    bytes_free(&bytes);
}

/* Bytes in front of the first stream and between two, and padding, which is no fault. */
static void test_strange_bytes(void **state)
{
    (void)state;
    struct bytes bytes = fixture_file("basic/ckpt/__0_0.distcp");
    struct scanned whole, moved;
    scan(bytes.data, bytes.size, &whole);
    unsigned char *longer = calloc(1, bytes.size + 5000);
    assert_non_null(longer);
    memcpy(longer + 5000, bytes.data, bytes.size);
    scan(longer, bytes.size + 5000, &moved);
    assert_int_equal(moved.found.count, whole.found.count);
    assert_int_equal(moved.found.items[0].offset, 5000);
    scanned_free(&moved);
    longer[4999] = 1;
    scan(longer, bytes.size + 5000, &moved);
    assert_int_equal(moved.found.count, whole.found.count + 1);
    assert_int_equal(moved.found.items[0].length, 5000);
    assert_non_null(strstr(moved.found.items[0].problem, "no stream"));
    scanned_free(&moved);
    scanned_free(&whole);
    free(longer);
    bytes_free(&bytes);
}

/* Only the beginning of a tensor is left, which claims what lies behind it. */
static void test_middle_lost(void **state)
{
    static const int64_t claimed = 3000;
    (void)state;
    struct bytes bytes = fixture_file("basic/ckpt/__0_0.distcp");
    struct scanned whole, lost;
    struct buffer file;
    buffer_init(&file, 0);
    scan(bytes.data, bytes.size, &whole);
    assert_in_range(whole.found.items[1].offset, 1, claimed);
    assert_int_equal(stream_part_head(&file, DCP_U8, 1, &claimed), DCP_OK);
    size_t kept = file.size;
    buffer_append(&file, bytes.data, bytes.size);
    scan(file.data, file.size, &lost);
    for (size_t i = 0; i < whole.found.count; i++)
        assert_non_null(find(&lost, kept + whole.found.items[i].offset));
    scanned_free(&lost);
    scanned_free(&whole);
    buffer_free(&file);
    bytes_free(&bytes);
}

/* An object that holds a file of torch.save in a tensor of bytes is one stream. */
static void test_stream_inside(void **state)
{
    (void)state;
    struct scanned scanned;
    struct bytes inner = fixture_file("pt_state_dict/ckpt.pt");
    const dcp_tensor tensor = {
        .dtype = DCP_U8, .ndim = 1, .global_shape = {(int64_t)inner.size}, .data = inner.data};
    dcp_state *root = dcp_state_new();
    dcp_state *object = dcp_state_dict(root, "object");
    struct buffer stream;
    buffer_init(&stream, 0);
    assert_non_null(dcp_state_tensor(object, "extra", &tensor));
    if (item_encode_stream(object, &stream) != DCP_OK)
        fail_msg("%s", dcp_error_message());
    scan(stream.data, stream.size, &scanned);
    assert_int_equal(scanned.found.count, 1);
    assert_int_equal(scanned.found.items[0].offset, 0);
    assert_int_equal(scanned.found.items[0].length, stream.size);
    assert_false(scanned.found.items[0].is_tensor);
    scanned_free(&scanned);
    buffer_free(&stream);
    dcp_state_free(root);
    bytes_free(&inner);
}

/* ---- hostile files ---- */

struct counted {
    const unsigned char *bytes;
    uint64_t read;
};

static dcp_status count_read(void *context, uint64_t offset, void *bytes, size_t size)
{
    struct counted *counted = context;
    memcpy(bytes, counted->bytes + offset, size);
    counted->read += size;
    return DCP_OK;
}

/* End records of which each claims all that lies before it. */
static void test_reads_are_bounded(void **state)
{
    static const unsigned char header[] = {'P', 'K', 3, 4};
    enum { SIZE = 2 << 20, STEP = 2048, END_SIZE = 22, HEADER = sizeof header };
    struct counted counted = {.bytes = calloc(1, SIZE)};
    struct found_streams found;
    struct arena arena;
    (void)state;
    unsigned char *bytes = (unsigned char *)counted.bytes;
    assert_non_null(bytes);
    memcpy(bytes, header, sizeof header);
    for (uint32_t at = STEP; at + END_SIZE <= SIZE; at += STEP) {
        uint32_t directory = at - HEADER;
        unsigned char end[END_SIZE] = {'P', 'K', 5, 6, [8] = 1, [10] = 1, [16] = HEADER};
        memcpy(end + 12, &directory, sizeof directory);
        memcpy(bytes + at, end, sizeof end);
    }
    const struct byte_source source = {.read = count_read, .context = &counted, .size = SIZE};
    arena_init(&arena, 0);
    assert_int_equal(stream_scan(source, &arena, &found), DCP_OK);
    assert_int_equal(found.count, 1);
    assert_false(found.items[0].is_stream);
    assert_true(counted.read < (uint64_t)64 << 20);
    memory_release(found.items);
    arena_free(&arena);
    free(bytes);
}

static void test_no_memory(void **state)
{
    (void)state;
    struct bytes bytes = fixture_file("basic/ckpt/__0_0.distcp");
    dcp_status status = DCP_ERR_NO_MEMORY;
    size_t trials = 0;
    while (status == DCP_ERR_NO_MEMORY) {
        struct scanned scanned;
        failing_allocator_install(trials++);
        arena_init(&scanned.arena, 0);
        status =
            stream_scan(byte_source_memory(bytes.data, bytes.size), &scanned.arena, &scanned.found);
        scanned_free(&scanned);
        failing_allocator_remove();
    }
    assert_int_equal(status, DCP_OK);
    assert_true(trials > 10);
    bytes_free(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_pytorch_writes),
        cmocka_unit_test(test_compressed),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_overwritten),
        cmocka_unit_test(test_strange_bytes),
        cmocka_unit_test(test_stream_inside),
        cmocka_unit_test(test_reads_are_bounded),
        cmocka_unit_test(test_middle_lost),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
