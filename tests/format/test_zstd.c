/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "failing_allocator.h"
#include "fixture.h"
#include "format/streams/item_decompress.h"
#include "format/zip/zip.h"

static const char text[] = "some text, some text, and some more text that is text";
/* Skippable frame of three bytes. */
static const char skippable[] = "\x5a\x2a\x4d\x18\3\0\0\0abc";
/* The empty frame that pyzstd leaves behind items. */
static const char empty_frame[] = "\x28\xb5\x2f\xfd\x20\x00\x01\x00";

static void put_frame(struct buffer *out, const void *bytes, size_t size, bool checksum)
{
    ZSTD_CCtx *context = ZSTD_createCCtx();
    size_t bound = ZSTD_compressBound(size);
    void *frame = malloc(bound);
    assert_non_null(frame);
    ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, checksum);
    ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, checksum);
    size_t frame_size = ZSTD_compress2(context, frame, bound, bytes, size);
    assert_false(ZSTD_isError(frame_size));
    buffer_append(out, frame, frame_size);
    free(frame);
    ZSTD_freeCCtx(context);
}

static void expect_bytes(const struct buffer *in, uint64_t limit, const void *bytes, size_t size)
{
    void *got = NULL;
    size_t got_size = 0;
    if (item_decompress(in->data, in->size, limit, &got, &got_size) != DCP_OK)
        fail_msg("%s", dcp_error_message());
    assert_int_equal(got_size, size);
    assert_memory_equal(got, bytes, size);
    memory_release(got);
}

static void expect_refused(const void *bytes, size_t size, uint64_t limit, const char *words)
{
    void *got = NULL;
    size_t got_size = 1;
    assert_int_equal(item_decompress(bytes, size, limit, &got, &got_size), DCP_ERR_FORMAT);
    assert_null(got);
    assert_int_equal(got_size, 0);
    if (strstr(dcp_error_message(), words) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", words, dcp_error_message());
}

static void check_piece(const struct fixture_piece *piece, void *context)
{
    struct zip_archive archive;
    void *bytes = NULL;
    size_t size = 0;
    if (!piece->zstd)
        return;
    assert_int_equal(
        item_decompress(piece->stream.data, piece->stream.size, 1 << 20, &bytes, &size), DCP_OK);
    assert_int_equal(zip_open(byte_source_memory(bytes, size), &archive), DCP_OK);
    assert_non_null(zip_find(&archive, "data.pkl"));
    zip_close(&archive);
    memory_release(bytes);
    ++*(size_t *)context;
}

static void test_reference_items(void **state)
{
    (void)state;
    static const char *const names[] = {"zstd", "zstd_extra_frame", "zstd_w2", "many_items"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct fixture fixture;
        size_t checked = 0;
        fixture_open(&fixture, names[i]);
        fixture_each_piece(&fixture, check_piece, &checked);
        fixture_close(&fixture);
        assert_true(checked > 0);
    }
}

static void test_frames(void **state)
{
    (void)state;
    struct buffer in;
    buffer_init(&in, 0);
    put_frame(&in, text, 20, true);
    expect_bytes(&in, 20, text, 20);
    buffer_append(&in, skippable, sizeof skippable - 1);
    put_frame(&in, text + 20, sizeof text - 20, false);
    buffer_append(&in, empty_frame, sizeof empty_frame);
    expect_bytes(&in, sizeof text, text, sizeof text);
    expect_bytes(&in, UINT64_MAX, text, sizeof text);
    expect_refused(in.data, in.size, sizeof text - 1, "more than the expected 53 bytes");
    expect_refused(in.data, in.size, 0, "more than the expected 0 bytes");
    buffer_append(&in, "more", 4);
    expect_refused(in.data, in.size, sizeof text, "expected a zstd frame");
    buffer_free(&in);

    buffer_init(&in, 0);
    buffer_append(&in, skippable, sizeof skippable - 1);
    buffer_append(&in, empty_frame, sizeof empty_frame);
    expect_bytes(&in, 0, "", 0);
    buffer_free(&in);
}

static void test_many_bytes(void **state)
{
    (void)state;
    enum { SIZE = 5000000 };
    struct buffer in;
    unsigned char *bytes = malloc(SIZE);
    assert_non_null(bytes);
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (unsigned char)(i * i >> 7);
    buffer_init(&in, 0);
    put_frame(&in, bytes, SIZE, false);
    expect_bytes(&in, SIZE, bytes, SIZE);
    expect_bytes(&in, SIZE * 10, bytes, SIZE);
    expect_refused(in.data, in.size, SIZE - 1, "more than");
    expect_refused(in.data, in.size - 1, SIZE, "inside a frame");
    buffer_free(&in);
    free(bytes);
}

/* Input and output in pieces of any size give the same bytes. */
static void run_in_pieces(const struct buffer *in, size_t input_size, size_t output_size,
                          const unsigned char *expected, size_t size)
{
    struct item_decompressor *decompressor;
    unsigned char piece[512];
    size_t done = 0, given = 0;
    bool ended = false;
    assert_true(output_size <= sizeof piece);
    assert_int_equal(item_decompressor_new(&decompressor), DCP_OK);
    for (int twice = 0; twice < 2; twice++) {
        size_t taken = 0;
        done = given = 0;
        for (ended = false; !ended;) {
            struct item_input input = {
                .bytes = in->data + taken, .size = given - taken, .last = given == in->size};
            struct item_output output = {.bytes = piece, .size = output_size};
            if (item_decompressor_run(decompressor, &input, &output, &ended) != DCP_OK)
                fail_msg("%s", dcp_error_message());
            assert_true(done + output.made <= size);
            assert_memory_equal(piece, expected + done, output.made);
            done += output.made;
            taken += input.taken;
            if (output.made < output_size)
                given = in->size - given < input_size ? in->size : given + input_size;
        }
        assert_int_equal(done, size);
        item_decompressor_restart(decompressor);
    }
    item_decompressor_free(decompressor);
}

static void test_pieces(void **state)
{
    (void)state;
    struct buffer in;
    unsigned char bytes[4 * sizeof text];
    for (size_t i = 0; i < 4; i++)
        memcpy(bytes + i * sizeof text, text, sizeof text);
    buffer_init(&in, 0);
    put_frame(&in, text, sizeof text, true);
    buffer_append(&in, skippable, sizeof skippable - 1);
    put_frame(&in, text, sizeof text, false);
    put_frame(&in, bytes, 2 * sizeof text, false);
    buffer_append(&in, empty_frame, sizeof empty_frame);
    for (size_t input = 1; input < 40; input += 3)
        for (size_t output = 1; output < 500; output += 7)
            run_in_pieces(&in, input, output, bytes, sizeof bytes);
    buffer_free(&in);
}

static uint64_t memory_for(const struct buffer *in, bool whole_item)
{
    const struct byte_source packed = byte_source_memory(in->data, in->size);
    uint64_t memory;
    assert_int_equal(item_decompressor_memory(&packed, whole_item, &memory), DCP_OK);
    return memory;
}

/* A frame with a larger window behind others counts, if it is looked at. */
static void test_memory_of_all_frames(void **state)
{
    (void)state;
    struct buffer in;
    size_t size = (size_t)1 << 20;
    unsigned char *bytes = malloc(size);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(i * i >> 9);
    buffer_init(&in, 0);
    assert_int_equal(memory_for(&in, true), 0);
    put_frame(&in, text, sizeof text, true);
    uint64_t small = memory_for(&in, true);
    assert_true(small > sizeof text && small < 1 << 20);
    buffer_append(&in, skippable, sizeof skippable - 1);
    buffer_append(&in, empty_frame, sizeof empty_frame);
    put_frame(&in, text, sizeof text, true);
    assert_int_equal(memory_for(&in, true), small);
    put_frame(&in, bytes, size, false);
    assert_true(memory_for(&in, true) > small + size);
    assert_int_equal(memory_for(&in, false), small);
    put_frame(&in, text, sizeof text, true);
    uint64_t large = memory_for(&in, true);
    assert_true(large > small + size);
    for (size_t cut = 0; cut < in.size; cut += 1 + cut / 64) {
        struct buffer part = {.data = in.data, .size = cut};
        assert_true(memory_for(&part, true) <= large);
    }
    buffer_free(&in);
    free(bytes);
}

static void test_refused(void **state)
{
    (void)state;
    expect_refused("", 0, 100, "expected a zstd frame");
    expect_refused("\x28\xb5\x2f", 3, 100, "expected a zstd frame");
    expect_refused("PK\3\4 and more", 13, 100, "expected a zstd frame");
    /* A frame of version 0.7 of the format. */
    expect_refused("\x27\xb5\x2f\xfd\x20\x00\x01\x00\x00", 9, 100, "expected a zstd frame");
    /* A window of 2^41 bytes, and one of 256 MiB. */
    expect_refused("\x28\xb5\x2f\xfd\x00\xf8\x01\x00\x00", 9, 100, "zstd");
    expect_refused("\x28\xb5\x2f\xfd\x00\x90\x01\x00\x00", 9, 100, "zstd");
    /* A content of 2^60 bytes. */
    expect_refused("\x28\xb5\x2f\xfd\xe0\0\0\0\0\0\0\0\x10\x01\x00\x00", 16, 100, "zstd");
    /* A skippable frame that ends behind the input. */
    expect_refused("\x50\x2a\x4d\x18\xff\xff\xff\x7f...", 11, 100, "inside a frame");
}

static void test_cut_and_flipped(void **state)
{
    (void)state;
    struct buffer in;
    buffer_init(&in, 0);
    put_frame(&in, text, sizeof text, true);
    for (size_t size = 0; size < in.size; size++)
        expect_refused(in.data, size, 1000, "zstd");
    for (size_t bit = 0; bit < in.size * 8; bit++) {
        void *bytes = NULL;
        size_t size = 0;
        in.data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        if (item_decompress(in.data, in.size, 1000, &bytes, &size) == DCP_OK)
            assert_true(size <= 1000);
        memory_release(bytes);
        in.data[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    buffer_free(&in);
}

static void test_no_memory(void **state)
{
    (void)state;
    struct buffer in;
    unsigned char *zeros = calloc(1, 200000);
    assert_non_null(zeros);
    buffer_init(&in, 0);
    put_frame(&in, zeros, 200000, false);
    size_t failed = 0;
    for (;; failed++) {
        void *bytes = NULL;
        size_t size = 0;
        failing_allocator_install(failed);
        dcp_status status = item_decompress(in.data, in.size, 200000, &bytes, &size);
        memory_release(bytes);
        failing_allocator_remove();
        if (status == DCP_OK)
            break;
        assert_int_equal(status, DCP_ERR_NO_MEMORY);
    }
    assert_true(failed >= 2);
    buffer_free(&in);
    free(zeros);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_items), cmocka_unit_test(test_frames),
        cmocka_unit_test(test_many_bytes),      cmocka_unit_test(test_refused),
        cmocka_unit_test(test_cut_and_flipped), cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_pieces),          cmocka_unit_test(test_memory_of_all_frames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
