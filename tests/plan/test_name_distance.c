/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "plan/names/name_distance.h"

static void distances_are_those_of_levenshtein(void **state)
{
    (void)state;
    assert_int_equal(name_distance("", "", 5), 0);
    assert_int_equal(name_distance("same", "same", 0), 0);
    assert_int_equal(name_distance("kitten", "sitting", 9), 3);
    assert_int_equal(name_distance("sitting", "kitten", 9), 3);
    assert_int_equal(name_distance("flaw", "lawn", 9), 2);
    assert_int_equal(name_distance("intention", "execution", 9), 5);
    assert_int_equal(name_distance("model.w", "module.model.w", 9), 7);
    assert_int_equal(name_distance("a.weight", "a.weight_scale", 9), 6);
    assert_int_equal(name_distance("aa", "a", 9), 1);
    assert_int_equal(name_distance("", "abc", 9), 3);
}

static void the_limit_ends_the_search(void **state)
{
    (void)state;
    assert_true(name_distance("kitten", "sitting", 2) > 2);
    assert_true(name_distance("abcdefgh", "stuvwxyz", 3) > 3);
    assert_true(name_distance("", "abc", 2) > 2);
    char a[1000], b[1000];
    memset(a, 'a', sizeof a);
    memset(b, 'b', sizeof b);
    a[999] = b[999] = '\0';
    assert_true(name_distance(a, b, 998) > 998);
    b[0] = 'a';
    b[998] = 'a';
    assert_true(name_distance(a, b, 2000) > 2000);
    memset(b + 1, 'a', 990);
    assert_int_equal(name_distance(a, b, 20), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distances_are_those_of_levenshtein),
        cmocka_unit_test(the_limit_ends_the_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
