/* SPDX-License-Identifier: BSD-3-Clause */
/* What a compressed stream gives as a byte source: the same bytes in whatever order they are asked
 * for, and nothing beyond its end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/checksum.h"
#include "base/error.h"
#include "fault/failing_allocator.h"
#include "format/streams/item_compress.h"
#include "scratch.h"
#include "storage/shard/decompressed_source.h"

/* Several times as much as is kept of it. */
enum { SIZE = 700000 };

struct stream {
    unsigned char *bytes;
    struct buffer packed;
};

static dcp_status receive(void *context, const void *bytes, size_t size)
{
    buffer_append(context, bytes, size);
    return DCP_OK;
}

/* Two frames, the second one without much sense in it. */
static int make_stream(void **state)
{
    struct stream *stream = malloc(sizeof *stream);
    struct item_compressor *compressor;
    uint64_t random = 7;
    assert_non_null(stream);
    *state = stream;
    stream->bytes = malloc(SIZE);
    assert_non_null(stream->bytes);
    for (size_t i = 0; i < SIZE; i++)
        stream->bytes[i] =
            (unsigned char)(i < SIZE / 2 ? i % 251 : (uint64_t)scratch_random(&random));
    buffer_init(&stream->packed, 0);
    assert_int_equal(item_compressor_new(0, 0, &compressor), DCP_OK);
    for (int half = 0; half < 2; half++) {
        assert_int_equal(item_compressor_add(compressor, stream->bytes + half * (SIZE / 2),
                                             SIZE / 2, receive, &stream->packed),
                         DCP_OK);
        assert_int_equal(item_compressor_end(compressor, receive, &stream->packed), DCP_OK);
    }
    item_compressor_free(compressor);
    return 0;
}

static int free_stream(void **state)
{
    struct stream *stream = *state;
    buffer_free(&stream->packed);
    free(stream->bytes);
    free(stream);
    return 0;
}

static void open_stream(const struct stream *stream, struct decompressed_source *decompressed,
                        size_t input_room, uint64_t limit, struct byte_source *source)
{
    assert_int_equal(decompressed_source_open(
                         decompressed, byte_source_memory(stream->packed.data, stream->packed.size),
                         input_room, limit, source),
                     DCP_OK);
}

static void expect_bytes(const struct stream *stream, const struct byte_source *source,
                         uint64_t offset, size_t size)
{
    unsigned char *bytes = malloc(size + 1);
    assert_non_null(bytes);
    if (byte_source_read(source, offset, bytes, size) != DCP_OK)
        fail_msg("%s", dcp_error_message());
    assert_memory_equal(bytes, stream->bytes + offset, size);
    free(bytes);
}

static void reads_in_any_order(void **state)
{
    static const size_t rooms[] = {16, 1000, DECOMPRESSED_INPUT};
    const struct stream *stream = *state;
    uint64_t random = 1;
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        struct decompressed_source decompressed;
        struct byte_source source;
        open_stream(stream, &decompressed, rooms[i], SIZE, &source);
        expect_bytes(stream, &source, 0, SIZE);
        for (int n = 0; n < 60; n++) {
            uint64_t offset = (uint64_t)scratch_below(&random, SIZE);
            int64_t most = n % 3 == 0 ? SIZE : n % 3 == 1 ? 50000 : 20;
            if (most > SIZE - (int64_t)offset)
                most = SIZE - (int64_t)offset;
            expect_bytes(stream, &source, offset, (size_t)scratch_below(&random, most + 1));
            expect_bytes(stream, &source, offset, (size_t)scratch_below(&random, most + 1));
        }
        decompressed_source_close(&decompressed);
    }
}

static void runs_with_gaps(void **state)
{
    const struct stream *stream = *state;
    for (size_t run = 1; run < 100000; run = run * 7 + 1) {
        struct decompressed_source decompressed;
        struct byte_source source;
        const unsigned char *beginning;
        size_t size;
        open_stream(stream, &decompressed, DECOMPRESSED_INPUT, SIZE, &source);
        assert_int_equal(decompressed_source_begin(&decompressed, &beginning, &size), DCP_OK);
        assert_int_equal(size, DECOMPRESSED_BEGINNING);
        assert_memory_equal(beginning, stream->bytes, size);
        assert_int_equal(decompressed_source_keep(&decompressed, 5000), DCP_OK);
        for (uint64_t offset = run; offset + run < SIZE; offset += 3 * run + 1000)
            expect_bytes(stream, &source, offset, run);
        expect_bytes(stream, &source, SIZE - 3000, 3000);
        expect_bytes(stream, &source, 10, 4990);
        decompressed_source_close(&decompressed);
    }
}

static void the_end_is_found(void **state)
{
    const struct stream *stream = *state;
    struct decompressed_source decompressed;
    struct byte_source source;
    unsigned char bytes[100];
    open_stream(stream, &decompressed, 3000, SIZE + 1000, &source);
    assert_int_equal(source.size, SIZE + 1000);
    assert_int_equal(byte_source_read(&source, SIZE - 50, bytes, 100), DCP_ERR_FORMAT);
    assert_non_null(strstr(dcp_error_message(), "ends at 700000"));
    assert_int_equal(byte_source_read(&source, SIZE, bytes, 1), DCP_ERR_FORMAT);
    assert_int_equal(byte_source_read(&source, SIZE + 990, bytes, 10), DCP_ERR_FORMAT);
    expect_bytes(stream, &source, SIZE - 100, 100);
    assert_int_equal(decompressed_source_end(&decompressed, &source), DCP_OK);
    assert_int_equal(source.size, SIZE);
    expect_bytes(stream, &source, 100000, 200000);
    decompressed_source_close(&decompressed);
    /* More than there may be. */
    open_stream(stream, &decompressed, 3000, SIZE - 1, &source);
    assert_int_equal(decompressed_source_end(&decompressed, &source), DCP_ERR_FORMAT);
    assert_non_null(strstr(dcp_error_message(), "more than the expected 699999 bytes"));
    decompressed_source_close(&decompressed);
}

static void records_have_their_crc(void **state)
{
    static const struct {
        uint64_t offset, length;
    } records[] = {{0, 1}, {0, SIZE}, {1000, 300000}, {70000, 600000}, {SIZE - 5, 5}, {200000, 9}};
    const struct stream *stream = *state;
    for (size_t i = 0; i < sizeof records / sizeof *records; i++)
        for (int way = 0; way < 4; way++) {
            struct decompressed_source decompressed;
            struct byte_source source;
            const unsigned char *beginning;
            uint64_t offset = records[i].offset, length = records[i].length;
            size_t size;
            uint32_t crc;
            open_stream(stream, &decompressed, 5000, SIZE, &source);
            assert_int_equal(decompressed_source_begin(&decompressed, &beginning, &size), DCP_OK);
            if (way > 0)
                decompressed_source_watch(&decompressed, offset, length);
            if (way == 2)
                expect_bytes(stream, &source, 350000, 200000);
            if (way == 3)
                assert_int_equal(decompressed_source_end(&decompressed, &source), DCP_OK);
            assert_int_equal(decompressed_source_watches(&decompressed, offset, length), way > 0);
            for (int twice = 0; twice < 2; twice++) {
                assert_int_equal(decompressed_source_crc(&decompressed, offset, length, &crc),
                                 DCP_OK);
                assert_int_equal(crc, crc32_update(0, stream->bytes + offset, (size_t)length));
            }
            assert_int_equal(decompressed_source_crc(&decompressed, SIZE - 10, 11, &crc),
                             DCP_ERR_FORMAT);
            decompressed_source_close(&decompressed);
        }
}

static dcp_status read_half(void *context, uint64_t offset, void *bytes, size_t size)
{
    const struct stream *stream = context;
    if (offset + size > stream->packed.size / 2)
        return dcp_error_set(DCP_ERR_IO, "half of it cannot be read");
    memcpy(bytes, stream->packed.data + offset, size);
    return DCP_OK;
}

static void failures_pass_through(void **state)
{
    struct stream *stream = *state;
    struct decompressed_source decompressed;
    struct byte_source source;
    const struct byte_source broken = {
        .read = read_half, .context = stream, .size = stream->packed.size};
    assert_int_equal(decompressed_source_open(&decompressed, broken, 1000, SIZE, &source), DCP_OK);
    expect_bytes(stream, &source, 0, 100000);
    assert_int_equal(decompressed_source_end(&decompressed, &source), DCP_ERR_IO);
    expect_bytes(stream, &source, 50, 1000);
    decompressed_source_close(&decompressed);
    for (long n = 1;; n++) {
        failing_allocator_install(n, false);
        dcp_status status = decompressed_source_open(
            &decompressed, byte_source_memory(stream->packed.data, stream->packed.size), 1000, SIZE,
            &source);
        if (status == DCP_OK)
            status = decompressed_source_end(&decompressed, &source);
        decompressed_source_close(&decompressed);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
        if (!reached)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_in_any_order),    cmocka_unit_test(runs_with_gaps),
        cmocka_unit_test(the_end_is_found),      cmocka_unit_test(records_have_their_crc),
        cmocka_unit_test(failures_pass_through),
    };
    return cmocka_run_group_tests(tests, make_stream, free_stream);
}
