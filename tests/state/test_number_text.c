/* SPDX-License-Identifier: BSD-3-Clause */
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "state/number_text.h"
#include "state/random.h"

static void numbers_are_written_as_python_does(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } numbers[] = {
        {0.0, "0.0"},
        {-0.0, "-0.0"},
        {1.0, "1.0"},
        {-12.5, "-12.5"},
        {0.1, "0.1"},
        {0.1 + 0.2, "0.30000000000000004"},
        {1.0 / 3, "0.3333333333333333"},
        {0.0001, "0.0001"},
        {0.00012345, "0.00012345"},
        {0.00001, "1e-05"},
        {0.000012345, "1.2345e-05"},
        {123456789.0, "123456789.0"},
        {100.0, "100.0"},
        {1e15, "1000000000000000.0"},
        {1234567890123456.0, "1234567890123456.0"},
        {1e16, "1e+16"},
        {12345678901234567.0, "1.2345678901234568e+16"},
        {9007199254740991.0, "9007199254740991.0"},
        {1e22, "1e+22"},
        {1e100, "1e+100"},
        {5e-324, "5e-324"},
        {2.2250738585072014e-308, "2.2250738585072014e-308"},
        {1.7976931348623157e308, "1.7976931348623157e+308"},
        {-1.7976931348623157e308, "-1.7976931348623157e+308"},
        {(double)INFINITY, "inf"},
        {-(double)INFINITY, "-inf"},
        {(double)NAN, "nan"},
        {-(double)NAN, "nan"},
    };
    char text[NUMBER_TEXT_MAX];
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        assert_string_equal(number_text(numbers[i].value, text), numbers[i].text);
}

static void numbers_are_read_back_exactly(void **state)
{
    (void)state;
    struct random random = {31};
    char text[NUMBER_TEXT_MAX];
    for (int round = 0; round < 100000; round++) {
        uint64_t bits = random_next(&random);
        double value;
        memcpy(&value, &bits, sizeof value);
        if (round % 2)
            value = (double)random_between(&random, -1000000, 1000000) / 1000;
        if (!isfinite(value))
            continue;
        double back = strtod(number_text(value, text), NULL);
        assert_memory_equal(&back, &value, sizeof value);
        assert_non_null(strpbrk(text, ".e"));
    }
}

static void the_locale_does_not_matter(void **state)
{
    (void)state;
    char text[NUMBER_TEXT_MAX];
    static const char *const locales[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "C"};
    for (size_t i = 0; i < sizeof locales / sizeof locales[0]; i++)
        if (setlocale(LC_NUMERIC, locales[i]))
            assert_string_equal(number_text(-1234.5, text), "-1234.5");
    setlocale(LC_NUMERIC, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_written_as_python_does),
        cmocka_unit_test(numbers_are_read_back_exactly),
        cmocka_unit_test(the_locale_does_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
