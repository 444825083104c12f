/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/names/name_filter.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static void without_patterns_all_pass(void **state)
{
    (void)state;
    struct name_filter filter = {0};
    assert_int_equal(name_filter_check(&filter), DCP_OK);
    assert_true(name_filter_passes(&filter, "anything", NULL));
    assert_true(name_filter_passes(&filter, "", NULL));
}

static void patterns_include_and_exclude(void **state)
{
    (void)state;
    static const char *const include[] = {"model.*", "step", "model.w"};
    static const char *const exclude[] = {"*.bias", "nothing"};
    struct name_filter filter = {include, COUNT(include), exclude, COUNT(exclude)};
    bool used[5] = {false};
    assert_int_equal(name_filter_check(&filter), DCP_OK);
    assert_false(name_filter_passes(&filter, "optimizer.w", used));
    for (size_t i = 0; i < 5; i++)
        assert_false(used[i]);
    assert_true(name_filter_passes(&filter, "model.x", used));
    assert_false(name_filter_passes(&filter, "model.x.bias", used));
    assert_true(name_filter_passes(&filter, "model.w", used));
    static const bool expected[] = {true, false, true, true, false};
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(used[i], expected[i]);

    filter.include_count = 0;
    assert_true(name_filter_passes(&filter, "optimizer.w", used));
    assert_false(name_filter_passes(&filter, "optimizer.bias", used));
    assert_false(name_filter_passes(&filter, "nothing", used));
}

static void a_plain_name_stands_for_all_below_it(void **state)
{
    (void)state;
    static const char *const include[] = {"a.b", "c?", "d."};
    struct name_filter filter = {include, COUNT(include), NULL, 0};
    static const struct {
        const char *name;
        bool passes;
    } cases[] = {{"a.b", true},   {"a.b.c", true},  {"a.b..", true}, {"a.bc", false},
                 {"a", false},    {"x.a.b", false}, {"cd", true},    {"cd.e", false},
                 {"c?.e", false}, {"d.", true},     {"d.e", false},  {"d..e", true}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        bool used[3] = {false};
        assert_int_equal(name_filter_passes(&filter, cases[i].name, used), cases[i].passes);
        assert_int_equal(used[0] || used[1] || used[2], cases[i].passes);
    }
}

static void expect_refused(struct name_filter filter, const char *message)
{
    assert_int_equal(name_filter_check(&filter), DCP_ERR_ARGUMENT);
    assert_string_equal(dcp_error_message(), message);
}

static void wrong_patterns_are_refused(void **state)
{
    (void)state;
    static const char *const good[] = {"a"};
    static const char *const null[] = {"a", NULL};
    static const char *const open[] = {"a", "b[c"};
    static const char *const bytes[] = {"\xff"};
    expect_refused((struct name_filter){NULL, 3, NULL, 0}, "include is NULL, expected 3 patterns");
    expect_refused((struct name_filter){good, 1, NULL, 1}, "exclude is NULL, expected 1 patterns");
    expect_refused((struct name_filter){null, 2, NULL, 0}, "include[1] is NULL");
    expect_refused((struct name_filter){good, 1, open, 2},
                   "exclude[1], \"b[c\", has a \"[\" without its \"]\"");
    expect_refused((struct name_filter){bytes, 1, NULL, 0}, "include[0] is not UTF-8");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_patterns_all_pass),
        cmocka_unit_test(patterns_include_and_exclude),
        cmocka_unit_test(a_plain_name_stands_for_all_below_it),
        cmocka_unit_test(wrong_patterns_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
