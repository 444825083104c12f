/* SPDX-License-Identifier: BSD-3-Clause */
/* Patterns of names, and JSON as far as it is looked at. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "run/run_json.h"
#include "run/run_name.h"
#include "run/run_own.h"

static int64_t step(const char *pattern, const char *name)
{
    struct run_numbers numbers;
    return run_name_match(pattern, name, &numbers) ? numbers.step : -1;
}

static void numbers_are_decimal_and_fit(void **state)
{
    (void)state;
    assert_int_equal(step("step_#", "step_10"), 10);
    assert_int_equal(step("step_#", "step_00000020"), 20);
    assert_int_equal(step("step_#", "step_9223372036854775807"), INT64_MAX);
    assert_int_equal(step("step_#", "step_9223372036854775808"), -1);
    assert_int_equal(step("step_#", "step_18446744073709551616"), -1);
    static const char *const others[] = {"step_",    "step_-5",  "step_+5",    "step_1.5",
                                         "step_1 ",  "xstep_10", "step_10x",   "step-10",
                                         "step_0x1", "",         "step_10.tmp"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(step("step_#", others[i]), -1);
    assert_int_equal(step("iter_#######", "iter_0000010"), 10);
    assert_int_equal(step("iter_#######", "iter_12345678"), 12345678);
    assert_int_equal(step("iter_#######", "iter_10"), -1);
}

static void names_of_own_steps_are_as_they_are_made(void **state)
{
    static const char *const others[] = {
        "step_",   "step_07", "step_7x",  "step_7.old",
        "step_-7", "step_+7", "xstep_7",  "step_18446744073709551616",
        "step",    "",        "step_7_1", "iter_0000007"};
    struct run_own own = {0};
    int64_t found = -1;
    (void)state;
    assert_int_equal(run_own_set_pattern(&own, NULL, DCP_RUN_LAYOUT_DCP), DCP_OK);
    assert_true(run_own_step(&own, "step_7", &found) && found == 7);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(run_own_step(&own, others[i], &found));
    assert_int_equal(run_own_set_pattern(&own, NULL, DCP_RUN_LAYOUT_BRIDGE), DCP_OK);
    assert_true(run_own_step(&own, "iter_0000007", &found) && found == 7);
    assert_true(run_own_step(&own, "iter_12345678", &found) && found == 12345678);
    assert_false(run_own_step(&own, "iter_7", &found));
    assert_false(run_own_step(&own, "iter_00000007", &found));
}

static void groups_and_stars_match_as_few_as_they_can(void **state)
{
    static const char pattern[] = "epoch_@[_train]_step_#[_eval_step_!][_*=*]";
    struct run_numbers numbers;
    (void)state;
    assert_true(run_name_match(pattern, "epoch_3_train_step_20_eval_step_4_loss=0.25", &numbers));
    assert_true(numbers.epoch == 3 && numbers.step == 20 && numbers.evaluated);
    assert_true(run_name_match(pattern, "epoch_3_step_21", &numbers));
    assert_true(numbers.step == 21 && !numbers.evaluated);
    assert_false(run_name_match(pattern, "epoch_3_step_21_more", &numbers));
    assert_true(
        run_name_match("*step=#-*[-v~].ckpt", "epoch=1-step=30-loss=0.5-v2.ckpt", &numbers));
    assert_true(numbers.step == 30 && numbers.version == 2);
    assert_memory_equal(numbers.digits, "30", 2);
    assert_int_equal(numbers.digit_count, 2);
    assert_true(run_name_match_any("a b* c", "bcd"));
    assert_false(run_name_match_any("a b* c", "d"));
}

static void decimals_are_numbers(void **state)
{
    static const char *const good[] = {"0.25", "-3", "+1.", ".5", "1e-05", "-2.5E+10", "12"};
    static const char *const bad[] = {"", "-", ".", "abc", "0.5x", "1e", "1.2.3", "--1", "e5"};
    (void)state;
    char name[32];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        snprintf(name, sizeof name, "loss=%s", good[i]);
        assert_true(run_name_match_any("*=^", name));
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(name, sizeof name, "loss=%s", bad[i]);
        assert_false(run_name_match_any("*=^", name));
    }
}

static bool has(const char *text, const char *key)
{
    return run_json_has(text, strlen(text), key);
}

static void json_is_whole_or_not(void **state)
{
    (void)state;
    assert_true(has("{}", NULL));
    assert_true(has(" {\"a\": [1, {\"b\": -2.5e3}, [], {}], \"c\": \"\\\"}\"} \n", "c"));
    assert_true(has("{\"a\": NaN}", "a"));
    assert_false(has("{\"a\": {\"b\": 1}}", "b"));
    assert_false(has("{\"a\": null}", "a"));
    static const char *const broken[] = {"",
                                         "[]",
                                         "{",
                                         "{\"a\": 1,",
                                         "{\"a\": 1",
                                         "{\"a\" 1}",
                                         "{\"a\": 1}}",
                                         "{\"a\": 1} x",
                                         "{\"a\": [1}",
                                         "{a: 1}",
                                         "{\"a\": \"b",
                                         "{\"a\": -}"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        assert_false(has(broken[i], NULL));
    static const char text[] = "{\"map\": {\"a\": 1}, \"none\": { }}";
    assert_true(run_json_has_members(text, sizeof text - 1, "map"));
    assert_false(run_json_has_members(text, sizeof text - 1, "none"));
    assert_false(run_json_has_members(text, sizeof text - 1, "other"));
}

/* Each beginning of a text is cut short, and nesting has an end. */
static void json_that_is_cut_or_deep_is_refused(void **state)
{
    static const char text[] = "{\"a\": [1, \"x\\\"y\", {\"b\": [true]}], \"c\": null}";
    char deep[200] = "{\"a\": ";
    (void)state;
    for (size_t size = 0; size < sizeof text - 1; size++)
        assert_false(run_json_has(text, size, NULL));
    assert_true(run_json_has(text, sizeof text - 1, NULL));
    memset(deep + 6, '[', 64);
    memset(deep + 70, ']', 64);
    deep[134] = '}';
    assert_false(run_json_has(deep, 135, NULL));
    deep[6] = deep[133] = ' ';
    assert_true(run_json_has(deep, 135, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_decimal_and_fit),
        cmocka_unit_test(names_of_own_steps_are_as_they_are_made),
        cmocka_unit_test(groups_and_stars_match_as_few_as_they_can),
        cmocka_unit_test(decimals_are_numbers),
        cmocka_unit_test(json_is_whole_or_not),
        cmocka_unit_test(json_that_is_cut_or_deep_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
