/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/checksum.h"
#include "base/crc32_wide.h"
#include "fault/failing_allocator.h"

static unsigned char data[10000];

static int fill(void **state)
{
    (void)state;
    uint32_t value = 1;
    for (size_t i = 0; i < sizeof data; i++) {
        value = value * 1664525 + 1013904223;
        data[i] = (unsigned char)(value >> 24);
    }
    return 0;
}

static void known_values(void **state)
{
    (void)state;
    assert_int_equal(crc32_update(0, "123456789", 9), 0xcbf43926);
    assert_int_equal(crc32_update(0, NULL, 0), 0);
    assert_int_equal(xxh3_64("", 0), 0x2d06800538d394c2);
}

static void crc_continues(void **state)
{
    (void)state;
    uint32_t whole = crc32_update(0, data, sizeof data);
    uint32_t crc = crc32_update(0, data, 17);
    assert_int_equal(crc32_update(crc, data + 17, sizeof data - 17), whole);
}

/* Bit by bit, as the polynomial is divided. */
static uint32_t crc_of_byte(uint32_t crc, unsigned char byte)
{
    crc = ~crc ^ byte;
    for (int bit = 0; bit < 8; bit++)
        crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    return ~crc;
}

/* Long runs are folded in vectors, of any length and from any address. */
static void long_crcs_are_right(void **state)
{
    (void)state;
    for (size_t begin = 0; begin < 3; begin++) {
        uint32_t crc = 0x12345678;
        for (size_t size = 0; begin + size < 3000; size++) {
            assert_int_equal(crc32_update(0x12345678, data + begin, size), crc);
            crc = crc_of_byte(crc, data[begin + size]);
        }
    }
    uint32_t whole = 0;
    for (size_t i = 0; i < sizeof data; i++)
        whole = crc_of_byte(whole, data[i]);
    assert_int_equal(crc32_update(0, data, sizeof data), whole);
}

/* A processor with wide vectors has those of 32 bytes, too. */
static void narrower_vectors_fold_alike(void **state)
{
    (void)state;
    for (size_t vector = 32; vector <= crc32_wide_vector(); vector *= 2)
        for (size_t size = CRC32_WIDE_LEAST; size <= 3000; size += 99) {
            unsigned char rest[16];
            size_t folded = crc32_wide_fold(vector, 0x12345678, data + 1, size, rest);
            assert_int_equal(folded, size / 256 * 256);
            assert_int_equal(crc32_update(UINT32_MAX, rest, sizeof rest),
                             crc32_update(0x12345678, data + 1, folded));
        }
}

static void crcs_are_joined(void **state)
{
    (void)state;
    uint32_t whole = crc32_update(0, data, sizeof data);
    for (size_t cut = 0; cut <= sizeof data; cut += cut / 3 + 1) {
        uint32_t first = crc32_update(0, data, cut);
        uint32_t second = crc32_update(0, data + cut, sizeof data - cut);
        assert_int_equal(crc32_join(first, second, sizeof data - cut), whole);
    }
    /* More zeros than would fit any memory, in two steps and in one. */
    uint32_t zeros = crc32_join(0, 0, UINT64_MAX / 2);
    assert_int_equal(crc32_join(crc32_join(1, 0, UINT64_MAX / 2), zeros, UINT64_MAX / 2),
                     crc32_join(1, 0, UINT64_MAX / 2 * 2));
}

static void hash_in_pieces(void **state)
{
    (void)state;
    struct xxh3_stream *stream = xxh3_stream_new();
    for (size_t piece = 1; piece < 3000; piece = piece * 3 + 1) {
        xxh3_stream_reset(stream);
        for (size_t at = 0; at < sizeof data; at += piece)
            xxh3_stream_update(stream, data + at,
                               sizeof data - at < piece ? sizeof data - at : piece);
        assert_int_equal(xxh3_stream_digest(stream), xxh3_64(data, sizeof data));
    }
    xxh3_stream_free(stream);
    xxh3_stream_free(NULL);
}

static void a_stream_without_memory(void **state)
{
    (void)state;
    failing_allocator_install(1, false);
    assert_null(xxh3_stream_new());
    assert_int_equal(failing_allocator_remove(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values),
        cmocka_unit_test(crc_continues),
        cmocka_unit_test(long_crcs_are_right),
        cmocka_unit_test(narrower_vectors_fold_alike),
        cmocka_unit_test(crcs_are_joined),
        cmocka_unit_test(hash_in_pieces),
        cmocka_unit_test(a_stream_without_memory),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
