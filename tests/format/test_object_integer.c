/* SPDX-License-Identifier: BSD-3-Clause */
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
#include "format/objects/object_integer.h"

static const struct {
    const char *digits;
    const char *bytes;
    size_t size;
} numbers[] = {
    {"0", "\0", 1},
    {"1", "\1", 1},
    {"-1", "\xff", 1},
    {"127", "\x7f", 1},
    {"128", "\x80\0", 2},
    {"-128", "\x80", 1},
    {"-129", "\x7f\xff", 2},
    {"255", "\xff\0", 2},
    {"-256", "\0\xff", 2},
    {"1000000000", "\0\xca\x9a\x3b", 4},
    {"18446744073709551615", "\xff\xff\xff\xff\xff\xff\xff\xff\0", 9},
    {"18446744073709551616", "\0\0\0\0\0\0\0\0\1", 9},
    {"-9223372036854775808", "\0\0\0\0\0\0\0\x80", 8},
    {"-9223372036854775809", "\xff\xff\xff\xff\xff\xff\xff\x7f\xff", 9},
    {"340282366920938463463374607431768211456", "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1", 17},
};

static void test_known_numbers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        unsigned char bytes[INTEGER_BYTES_MAX];
        size_t size;
        char *digits;
        assert_int_equal(integer_from_digits(numbers[i].digits, bytes, &size), DCP_OK);
        assert_int_equal(size, numbers[i].size);
        assert_memory_equal(bytes, numbers[i].bytes, size);
        assert_int_equal(integer_to_digits(bytes, size, &digits), DCP_OK);
        assert_string_equal(digits, numbers[i].digits);
        memory_release(digits);
    }
}

static void test_longer_forms_of_a_number(void **state)
{
    (void)state;
    char *digits;
    assert_int_equal(integer_to_digits("\xfe\xff\xff\xff\xff\xff", 6, &digits), DCP_OK);
    assert_string_equal(digits, "-2");
    memory_release(digits);
    assert_int_equal(integer_to_digits("\7\0\0\0\0", 5, &digits), DCP_OK);
    assert_string_equal(digits, "7");
    memory_release(digits);
    assert_int_equal(integer_to_digits("", 0, &digits), DCP_OK);
    assert_string_equal(digits, "0");
    memory_release(digits);
}

/* Random numbers of every size there and back. */
static void test_there_and_back(void **state)
{
    (void)state;
    unsigned char bytes[INTEGER_BYTES_MAX], back[INTEGER_BYTES_MAX];
    uint64_t random = 1;
    for (size_t size = 1; size <= INTEGER_BYTES_MAX; size += size < 40 ? 1 : 251) {
        for (size_t i = 0; i < size; i++) {
            random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            bytes[i] = (unsigned char)(random >> 56);
        }
        bytes[size - 1] = size % 2 == 0 ? 0x55 : 0xaa;
        char *digits;
        size_t back_size;
        assert_int_equal(integer_to_digits(bytes, size, &digits), DCP_OK);
        assert_int_equal(integer_from_digits(digits, back, &back_size), DCP_OK);
        assert_int_equal(back_size, size);
        assert_memory_equal(back, bytes, size);
        memory_release(digits);
    }
}

/* The largest and smallest numbers of the most bytes, and those beyond. */
static void test_limits(void **state)
{
    (void)state;
    unsigned char bytes[INTEGER_BYTES_MAX];
    size_t size;
    char *digits;
    memset(bytes, 0, sizeof bytes);
    bytes[sizeof bytes - 1] = 0x80;
    assert_int_equal(integer_to_digits(bytes, sizeof bytes, &digits), DCP_OK);
    assert_int_equal(integer_from_digits(digits, bytes, &size), DCP_OK);
    assert_int_equal(size, sizeof bytes);
    assert_int_equal(bytes[size - 1], 0x80);
    assert_int_equal(digits[0], '-');
    assert_int_equal(integer_from_digits(digits + 1, bytes, &size), DCP_ERR_UNSUPPORTED);
    memory_release(digits);

    char many[INTEGER_BYTES_MAX * 3 + 1];
    memset(many, '9', sizeof many - 1);
    many[sizeof many - 1] = '\0';
    assert_int_equal(integer_from_digits(many, bytes, &size), DCP_ERR_UNSUPPORTED);
}

static void test_what_is_no_number(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "-", "+1", "1.5", " 1", "1 ", "0x10", "--1"};
    unsigned char bytes[INTEGER_BYTES_MAX];
    size_t size;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_int_equal(integer_from_digits(texts[i], bytes, &size), DCP_ERR_ARGUMENT);
}

static void test_without_memory(void **state)
{
    (void)state;
    char *digits;
    failing_allocator_install(0);
    assert_int_equal(integer_to_digits("\1", 1, &digits), DCP_ERR_NO_MEMORY);
    failing_allocator_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_numbers),     cmocka_unit_test(test_longer_forms_of_a_number),
        cmocka_unit_test(test_there_and_back),    cmocka_unit_test(test_limits),
        cmocka_unit_test(test_what_is_no_number), cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
