/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/checksum.h"
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

static void crc_of_parts_combines(void **state)
{
    (void)state;
    uint32_t whole = crc32_update(0, data, sizeof data);
    for (size_t cut = 0; cut <= sizeof data; cut += cut < 300 ? 1 : 97) {
        uint32_t a = crc32_update(0, data, cut);
        uint32_t b = crc32_update(0, data + cut, sizeof data - cut);
        assert_int_equal(crc32_combine(a, b, sizeof data - cut), whole);
    }
}

/* Lengths that no buffer has: the order of combining makes no difference. */
static void crc_of_long_parts_combines(void **state)
{
    (void)state;
    uint32_t a = 0x12345678, b = 0x9abcdef0, c = 0x0f1e2d3c;
    for (uint64_t of_b = 1; of_b < UINT64_C(1) << 60; of_b = of_b * 3 + 1)
        for (uint64_t of_c = 0; of_c < UINT64_C(1) << 60; of_c = of_c * 5 + 2)
            assert_int_equal(crc32_combine(crc32_combine(a, b, of_b), c, of_c),
                             crc32_combine(a, crc32_combine(b, c, of_c), of_b + of_c));
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
        cmocka_unit_test(known_values),          cmocka_unit_test(crc_continues),
        cmocka_unit_test(crc_of_parts_combines), cmocka_unit_test(crc_of_long_parts_combines),
        cmocka_unit_test(hash_in_pieces),        cmocka_unit_test(a_stream_without_memory),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
