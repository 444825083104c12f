/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "base/byte_source.h"
#include "base/error.h"
#include "fault/failing_allocator.h"

static void what_is_appended_is_read(void **state)
{
    (void)state;
    static const uint64_t varints[] = {
        0, 1, 127, 128, 16383, 16384, UINT32_MAX, UINT64_MAX, UINT64_MAX / 2, 1ULL << 63};
    enum { VARINTS = sizeof varints / sizeof *varints };
    struct buffer buffer;
    buffer_init(&buffer, 0);
    buffer_append_u8(&buffer, 0x12);
    buffer_append_u16(&buffer, 0x3456);
    buffer_append_u32(&buffer, 0x789abcde);
    buffer_append_u64(&buffer, 0x0123456789abcdef);
    buffer_append_zeros(&buffer, 3);
    for (size_t i = 0; i < VARINTS; i++)
        buffer_append_varint(&buffer, varints[i]);
    buffer_append_text(&buffer, "name\0with nul", 13);
    buffer_append_text(&buffer, NULL, 0);
    buffer_append_format(&buffer, "%d-%s", 42, "x");
    buffer_append_format(&buffer, "%s", "");
    assert_int_equal(buffer_status(&buffer), DCP_OK);
    assert_memory_equal(buffer.data, "\x12\x56\x34\xde\xbc\x9a\x78", 7);

    struct reader reader;
    reader_init(&reader, buffer.data, buffer.size);
    assert_int_equal(reader_u8(&reader), 0x12);
    assert_int_equal(reader_u16(&reader), 0x3456);
    assert_int_equal(reader_u32(&reader), 0x789abcde);
    assert_int_equal(reader_u64(&reader), 0x0123456789abcdef);
    assert_memory_equal(reader_bytes(&reader, 3), "\0\0\0", 3);
    for (size_t i = 0; i < VARINTS; i++)
        assert_int_equal(reader_varint(&reader), varints[i]);
    size_t length;
    assert_memory_equal(reader_text(&reader, &length), "name\0with nul", 13);
    assert_int_equal(length, 13);
    assert_non_null(reader_text(&reader, &length));
    assert_int_equal(length, 0);
    assert_memory_equal(reader_bytes(&reader, 4), "42-x", 4);
    assert_int_equal(reader_left(&reader), 0);
    assert_false(reader.failed);
    buffer_free(&buffer);
}

/* Every prefix of a message ends in failure, never past its end. */
static void a_reader_stays_inside(void **state)
{
    (void)state;
    struct buffer buffer;
    buffer_init(&buffer, 0);
    buffer_append_u16(&buffer, 7);
    buffer_append_varint(&buffer, 1000000);
    buffer_append_text(&buffer, "text", 4);
    buffer_append_u64(&buffer, 9);
    for (size_t size = 0; size <= buffer.size; size++) {
        struct reader reader;
        size_t length;
        reader_init(&reader, buffer.data, size);
        reader_u16(&reader);
        reader_varint(&reader);
        reader_text(&reader, &length);
        uint64_t last = reader_u64(&reader);
        assert_int_equal(reader.failed, size < buffer.size);
        assert_int_equal(last, size < buffer.size ? 0 : 9);
        assert_true(reader.position <= size);
        if (reader.failed) {
            assert_int_equal(reader_u8(&reader), 0);
            assert_null(reader_bytes(&reader, 0));
        }
    }
    buffer_free(&buffer);
}

static void malformed_lengths_are_failures(void **state)
{
    (void)state;
    static const unsigned char too_long[] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
                                             0x80, 0x80, 0x80, 0x80, 0x01};
    static const unsigned char too_big[] = {0xff, 0xff, 0xff, 0xff, 0xff,
                                            0xff, 0xff, 0xff, 0xff, 0x02};
    static const unsigned char huge_text[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                              0xff, 0xff, 0xff, 0x01, 'x'};
    struct reader reader;
    size_t length = 1;
    reader_init(&reader, too_long, sizeof too_long);
    assert_int_equal(reader_varint(&reader), 0);
    assert_true(reader.failed);
    reader_init(&reader, too_big, sizeof too_big);
    assert_int_equal(reader_varint(&reader), 0);
    assert_true(reader.failed);
    reader_init(&reader, "\xff\xff", 2); /* and cut short */
    assert_int_equal(reader_varint(&reader), 0);
    assert_true(reader.failed);
    reader_init(&reader, huge_text, sizeof huge_text);
    assert_null(reader_text(&reader, &length));
    assert_int_equal(length, 0);
    assert_true(reader.failed);
}

static void a_maximum_is_kept_and_reported_once(void **state)
{
    (void)state;
    struct buffer buffer;
    buffer_init(&buffer, 100);
    buffer_append_zeros(&buffer, 100);
    assert_int_equal(buffer_status(&buffer), DCP_OK);
    assert_true(buffer.capacity <= 100);
    buffer_append_u8(&buffer, 1);
    assert_int_equal(buffer.size, 100);
    error_clear();
    assert_int_equal(buffer_status(&buffer), DCP_ERR_UNSUPPORTED);
    assert_string_equal(dcp_error_message(), "the output exceeds its limit of 100 bytes");
    buffer_append(&buffer, "", 0);
    assert_int_equal(buffer_reserve(&buffer, 0), DCP_ERR_UNSUPPORTED);
    buffer_clear(&buffer);
    assert_int_equal(buffer_reserve(&buffer, 101), DCP_ERR_UNSUPPORTED);
    buffer_clear(&buffer);
    buffer_append_u8(&buffer, 1);
    assert_int_equal(buffer_status(&buffer), DCP_OK);
    buffer_free(&buffer);
    buffer_init(&buffer, 0);
    buffer_append_u8(&buffer, 1);
    assert_int_equal(buffer_reserve(&buffer, SIZE_MAX), DCP_ERR_NO_MEMORY);
    buffer_free(&buffer);
}

/* Also by a buffer that has more memory than that. */
static void a_lowered_maximum_is_kept(void **state)
{
    (void)state;
    struct buffer buffer;
    buffer_init(&buffer, 0);
    buffer_append_zeros(&buffer, 1000);
    assert_int_equal(buffer_status(&buffer), DCP_OK);
    buffer_clear(&buffer);
    buffer_set_maximum(&buffer, 10);
    buffer_append_zeros(&buffer, 10);
    assert_int_equal(buffer_status(&buffer), DCP_OK);
    buffer_append_u8(&buffer, 1);
    assert_int_equal(buffer.size, 10);
    assert_int_equal(buffer_status(&buffer), DCP_ERR_UNSUPPORTED);
    assert_string_equal(dcp_error_message(), "the output exceeds its limit of 10 bytes");
    /* One below the contents allows nothing more. */
    buffer_clear(&buffer);
    buffer_append_zeros(&buffer, 10);
    buffer_set_maximum(&buffer, 5);
    assert_int_equal(buffer_reserve(&buffer, 1), DCP_ERR_UNSUPPORTED);
    assert_int_equal(buffer.size, 10);
    buffer_clear(&buffer);
    buffer_set_maximum(&buffer, 0);
    buffer_append_zeros(&buffer, 2000);
    assert_int_equal(buffer_status(&buffer), DCP_OK);
    buffer_free(&buffer);
}

static void failed_appends_are_remembered(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        failing_allocator_install(n, false);
        struct buffer buffer;
        buffer_init(&buffer, 0);
        for (uint32_t i = 0; i < 1000; i++)
            buffer_append_u32(&buffer, i);
        buffer_append_format(&buffer, "%03000d", 1);
        dcp_status status = buffer_status(&buffer);
        bool reached = failing_allocator_reached();
        assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
        assert_true(reached || buffer.size == 7000);
        buffer_free(&buffer);
        assert_int_equal(failing_allocator_remove(), 0);
        if (!reached)
            break;
    }
}

static void sources_check_their_range(void **state)
{
    (void)state;
    struct byte_source source = byte_source_memory("0123456789", 10);
    char bytes[10];
    assert_int_equal(byte_source_read(&source, 7, bytes, 3), DCP_OK);
    assert_memory_equal(bytes, "789", 3);
    assert_int_equal(byte_source_read(&source, 10, bytes, 0), DCP_OK);
    assert_int_equal(byte_source_read(&source, 8, bytes, 3), DCP_ERR_FORMAT);
    assert_string_equal(dcp_error_message(),
                        "cannot read 3 bytes at offset 8: the data ends at 10");
    assert_int_equal(byte_source_read(&source, 11, bytes, 0), DCP_ERR_FORMAT);
    assert_int_equal(byte_source_read(&source, UINT64_MAX, bytes, 2), DCP_ERR_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_appended_is_read),
        cmocka_unit_test(a_reader_stays_inside),
        cmocka_unit_test(malformed_lengths_are_failures),
        cmocka_unit_test(a_maximum_is_kept_and_reported_once),
        cmocka_unit_test(a_lowered_maximum_is_kept),
        cmocka_unit_test(failed_appends_are_remembered),
        cmocka_unit_test(sources_check_their_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
