/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/checked.h"

/* The code point that a sequence of length bytes encodes by the definition, or -1. */
static long decode(const unsigned char *bytes, size_t length)
{
    static const long smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    if (length == 1)
        return bytes[0] < 0x80 ? bytes[0] : -1;
    unsigned char mask = (unsigned char)(0xff << (7 - length));
    if ((bytes[0] & mask) != lead[length])
        return -1;
    long value = bytes[0] & ~mask & 0xff;
    for (size_t i = 1; i < length; i++) {
        if ((bytes[i] & 0xc0) != 0x80)
            return -1;
        value = value << 6 | (bytes[i] & 0x3f);
    }
    bool surrogate = value >= 0xd800 && value <= 0xdfff;
    return value < smallest[length] || value > 0x10ffff || surrogate ? -1 : value;
}

/* Whether bytes can be cut into sequences that decode. */
static bool valid(const unsigned char *bytes, size_t size)
{
    size_t at = 0;
    while (at < size) {
        size_t length = 1;
        while (length <= 4 && length <= size - at && decode(bytes + at, length) < 0)
            length++;
        if (length > 4 || length > size - at)
            return false;
        at += length;
    }
    return true;
}

static void all_sequences_of_three_and_chosen_ones_of_four(void **state)
{
    (void)state;
    static const unsigned char edges[] = {0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf,
                                          0xc0, 0xc1, 0xc2, 0xe0, 0xed, 0xf0, 0xf4, 0xff};
    unsigned char bytes[4];
    for (unsigned value = 0; value < 1u << 24; value += value % 3 + 1) {
        bytes[0] = (unsigned char)(value >> 16);
        bytes[1] = (unsigned char)(value >> 8);
        bytes[2] = (unsigned char)value;
        if (utf8_is_valid((char *)bytes, 3) != valid(bytes, 3))
            fail_msg("%02x %02x %02x", bytes[0], bytes[1], bytes[2]);
    }
    for (unsigned first = 0; first < 256; first++)
        for (unsigned second = 0; second < 256; second++)
            for (size_t i = 0; i < sizeof edges * sizeof edges; i++) {
                bytes[0] = (unsigned char)first;
                bytes[1] = (unsigned char)second;
                bytes[2] = edges[i / sizeof edges];
                bytes[3] = edges[i % sizeof edges];
                if (utf8_is_valid((char *)bytes, 4) != valid(bytes, 4))
                    fail_msg("%02x %02x %02x %02x", bytes[0], bytes[1], bytes[2], bytes[3]);
            }
}

static void the_length_counts(void **state)
{
    (void)state;
    assert_true(utf8_is_valid(NULL, 0));
    assert_true(utf8_is_valid("a\0b", 3));
    assert_true(utf8_is_valid("\xf0\x9f\x98\x80", 4));
    for (size_t length = 1; length < 4; length++)
        assert_false(utf8_is_valid("\xf0\x9f\x98\x80", length));
}

static void arithmetic_reports_overflow(void **state)
{
    (void)state;
    int64_t i;
    uint64_t u;
    assert_true(checked_add_i64(INT64_MAX - 1, 1, &i) && i == INT64_MAX);
    assert_false(checked_add_i64(INT64_MAX, 1, &i));
    assert_false(checked_multiply_i64(INT64_MIN, -1, &i));
    assert_true(checked_multiply_i64(-3, 5, &i) && i == -15);
    assert_false(checked_add_u64(UINT64_MAX, 1, &u));
    assert_false(checked_multiply_u64(UINT64_C(1) << 32, UINT64_C(1) << 32, &u));
    assert_true(checked_multiply_u64(UINT64_C(1) << 32, UINT64_C(1) << 31, &u));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_sequences_of_three_and_chosen_ones_of_four),
        cmocka_unit_test(the_length_counts),
        cmocka_unit_test(arithmetic_reports_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
