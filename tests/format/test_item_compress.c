/* SPDX-License-Identifier: BSD-3-Clause */
/* Items become frames of the form that PyTorch's extension writes, whatever is in them, in whatever
 * pieces they come, by however many threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"
#include "fault/failing_allocator.h"
#include "format/streams/item_compress.h"
#include "format/streams/item_decompress.h"

static dcp_status receive(void *context, const void *bytes, size_t size)
{
    buffer_append(context, bytes, size);
    return buffer_status(context);
}

static dcp_status compress(struct item_compressor *compressor, const unsigned char *bytes,
                           size_t size, size_t piece, struct buffer *out)
{
    for (size_t at = 0; at < size; at += piece)
        RETURN_IF_ERROR(item_compressor_add(compressor, bytes + at,
                                            size - at < piece ? size - at : piece, receive, out));
    return item_compressor_end(compressor, receive, out);
}

/* noise: of 256, how many bytes are random. */
static unsigned char *make_bytes(size_t size, unsigned noise)
{
    unsigned char *bytes = malloc(size + 1);
    uint64_t random = 1;
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        bytes[i] =
            (random >> 40 & 255) < noise ? (unsigned char)(random >> 56) : (unsigned char)(i / 97);
    }
    return bytes;
}

static void expect_back(const struct buffer *frame, const unsigned char *bytes, size_t size)
{
    void *back = NULL;
    size_t back_size = 0;
    assert_int_equal(item_decompress(frame->data, frame->size, size, &back, &back_size), DCP_OK);
    assert_int_equal(back_size, size);
    assert_memory_equal(back, bytes, size);
    memory_release(back);
}

static void test_form(void **state)
{
    (void)state;
    /* No size, no checksum, no dictionary, a window of 2 MiB: what package zstandard writes. */
    static const unsigned char head[] = {0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58};
    static const size_t sizes[] = {1, 5000, 3000000};
    struct item_compressor *compressor;
    assert_int_equal(item_compressor_new(0, 0, &compressor), DCP_OK);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *bytes = make_bytes(sizes[i], 20);
        struct buffer frame, again;
        buffer_init(&frame, 0);
        buffer_init(&again, 0);
        assert_int_equal(compress(compressor, bytes, sizes[i], 100000, &frame), DCP_OK);
        assert_int_equal(compress(compressor, bytes, sizes[i], 100000, &again), DCP_OK);
        assert_memory_equal(frame.data, head, sizeof head);
        assert_int_equal(again.size, frame.size);
        assert_memory_equal(again.data, frame.data, frame.size);
        expect_back(&frame, bytes, sizes[i]);
        buffer_free(&again);
        buffer_free(&frame);
        free(bytes);
    }
    item_compressor_free(compressor);
}

static void test_levels_and_threads(void **state)
{
    (void)state;
    enum { SIZE = 7000000 };
    static const int32_t levels[] = {-100, 1, 0, 9, 13};
    unsigned char *bytes = make_bytes(SIZE, 60);
    size_t smallest = SIZE;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        struct buffer frames[3];
        for (uint32_t t = 0; t < 3; t++) {
            struct item_compressor *compressor;
            buffer_init(&frames[t], 0);
            assert_int_equal(item_compressor_new(levels[i], t * 2, &compressor), DCP_OK);
            assert_int_equal(compress(compressor, bytes, SIZE, 300000, &frames[t]), DCP_OK);
            item_compressor_free(compressor);
            assert_true(frames[t].size <= item_compressed_bound(SIZE));
            expect_back(&frames[t], bytes, SIZE);
        }
        assert_int_equal(frames[1].size, frames[2].size);
        assert_memory_equal(frames[1].data, frames[2].data, frames[1].size);
        assert_true(frames[0].size <= smallest);
        smallest = frames[0].size;
        for (size_t t = 0; t < 3; t++)
            buffer_free(&frames[t]);
    }
    free(bytes);
}

static void test_noise_does_not_grow(void **state)
{
    (void)state;
    for (size_t size = 0; size < 5000000; size = size * 7 + 1) {
        unsigned char *bytes = make_bytes(size, 256);
        for (uint32_t threads = 0; threads < 4; threads += 3) {
            struct item_compressor *compressor;
            struct buffer frame;
            buffer_init(&frame, 0);
            assert_int_equal(item_compressor_new(3, threads, &compressor), DCP_OK);
            assert_int_equal(compress(compressor, bytes, size, 65536, &frame), DCP_OK);
            assert_true(frame.size <= item_compressed_bound(size));
            assert_true(frame.size <= size + size / 100 + 1024);
            expect_back(&frame, bytes, size);
            item_compressor_free(compressor);
            buffer_free(&frame);
        }
        free(bytes);
    }
}

static void test_range_of_levels(void **state)
{
    (void)state;
    assert_int_equal(item_compressor_check(0), DCP_OK);
    assert_int_equal(item_compressor_check(22), DCP_OK);
    assert_int_equal(item_compressor_check(-131072), DCP_OK);
    assert_int_equal(item_compressor_check(23), DCP_ERR_ARGUMENT);
    assert_non_null(strstr(dcp_error_message(), "compression_level is 23, expected -131072 to 22"));
    assert_int_equal(item_compressor_check(INT32_MIN), DCP_ERR_ARGUMENT);
    assert_int_equal(item_compressor_check(INT32_MAX), DCP_ERR_ARGUMENT);
}

static dcp_status refuse(void *context, const void *bytes, size_t size)
{
    (void)context, (void)bytes, (void)size;
    return dcp_error_set(DCP_ERR_NO_SPACE, "no space");
}

static void test_refusals_end_it(void **state)
{
    (void)state;
    enum { SIZE = 3000000 };
    unsigned char *bytes = make_bytes(SIZE, 256);
    for (uint32_t threads = 0; threads < 3; threads += 2) {
        struct item_compressor *compressor;
        assert_int_equal(item_compressor_new(1, threads, &compressor), DCP_OK);
        dcp_status status = item_compressor_add(compressor, bytes, SIZE, refuse, NULL);
        if (status == DCP_OK)
            status = item_compressor_end(compressor, refuse, NULL);
        assert_int_equal(status, DCP_ERR_NO_SPACE);
        item_compressor_free(compressor);
    }
    free(bytes);
}

/* The message says of what size, as far as that is known. */
static void expect_no_memory(dcp_status status)
{
    assert_int_equal(status, DCP_ERR_NO_MEMORY);
    assert_non_null(strstr(dcp_error_message(), "no memory for "));
    assert_null(strstr(dcp_error_message(), "for 0 bytes"));
}

static void test_no_memory_for_decompressing(void **state)
{
    (void)state;
    enum { SIZE = 3000000 };
    unsigned char *bytes = make_bytes(SIZE, 20);
    struct item_compressor *compressor;
    struct buffer frame;
    buffer_init(&frame, 0);
    assert_int_equal(item_compressor_new(3, 0, &compressor), DCP_OK);
    assert_int_equal(compress(compressor, bytes, SIZE, SIZE, &frame), DCP_OK);
    item_compressor_free(compressor);
    bool reached = true;
    for (long n = 1; reached; n++) {
        void *back = NULL;
        size_t size = 0;
        failing_allocator_install(n, false);
        dcp_status status = item_decompress(frame.data, frame.size, SIZE, &back, &size);
        reached = failing_allocator_reached();
        memory_release(back);
        failing_allocator_remove();
        assert_true(reached || status == DCP_OK);
        if (status == DCP_OK)
            continue;
        expect_no_memory(status);
        assert_non_null(strstr(dcp_error_message(), " bytes of decompressing an item"));
    }
    buffer_free(&frame);
    free(bytes);
}

static void test_no_memory(void **state)
{
    (void)state;
    enum { SIZE = 3000000 };
    unsigned char *bytes = make_bytes(SIZE, 20);
    for (uint32_t threads = 0; threads < 3; threads += 2) {
        long n = 1;
        for (;; n++) {
            struct item_compressor *compressor = NULL;
            struct buffer frame;
            buffer_init(&frame, 0);
            failing_allocator_install(n, n % 2);
            dcp_status status = item_compressor_new(3, threads, &compressor);
            if (status == DCP_OK)
                status = compress(compressor, bytes, SIZE, 200000, &frame);
            else
                assert_null(compressor);
            item_compressor_free(compressor);
            bool reached = failing_allocator_reached();
            struct buffer copy = {.data = malloc(frame.size + 1), .size = frame.size};
            if (frame.size > 0)
                memcpy(copy.data, frame.data, frame.size);
            buffer_free(&frame);
            assert_int_equal(failing_allocator_remove(), 0);
            /* Threads do with fewer buffers than they would like. */
            if (status == DCP_OK)
                expect_back(&copy, bytes, SIZE);
            else
                expect_no_memory(status);
            free(copy.data);
            if (!reached) {
                assert_int_equal(status, DCP_OK);
                break;
            }
        }
        assert_true(n > 3);
    }
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_form),
        cmocka_unit_test(test_levels_and_threads),
        cmocka_unit_test(test_noise_does_not_grow),
        cmocka_unit_test(test_range_of_levels),
        cmocka_unit_test(test_refusals_end_it),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_no_memory_for_decompressing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
