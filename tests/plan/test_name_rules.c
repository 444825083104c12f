/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fault/failing_allocator.h"
#include "plan/names/name_rules.h"
#include "samples.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const dcp_rename table[] = {
    {DCP_RENAME_EXACT, "lm_head.weight", "embed.weight"},
    {DCP_RENAME_GLOB, "model.*.attn.w[qk]", "layers.*.attention.qk"},
    {DCP_RENAME_EXACT, "model.0.attn.wq", "never: the pattern above comes first"},
    {DCP_RENAME_EXACT, "model.1.mlp", "first"},
    {DCP_RENAME_EXACT, "model.1.mlp", "second"},
    {DCP_RENAME_PREFIX, "model.", "net."},
    {DCP_RENAME_GLOB, "*-*-*", "*/*"},
    {DCP_RENAME_GLOB, "all.*", "one"},
    {DCP_RENAME_EXACT, "star", "a*b"},
};

static void expect(struct name_rules *rules, const char *name, const char *expected, size_t which)
{
    const char *stored;
    size_t rule;
    assert_int_equal(name_rules_apply(rules, name, &stored, &rule), DCP_OK);
    assert_string_equal(stored, expected);
    assert_int_equal(rule, which);
}

static void the_first_rule_that_matches_wins(void **state)
{
    (void)state;
    struct name_rules rules;
    assert_int_equal(name_rules_init(&rules, table, COUNT(table)), DCP_OK);
    expect(&rules, "lm_head.weight", "embed.weight", 0);
    expect(&rules, "lm_head.weights", "lm_head.weights", COUNT(table));
    expect(&rules, "model.0.attn.wq", "layers.0.attention.qk", 1);
    expect(&rules, "model.0.attn.wv", "net.0.attn.wv", 5);
    expect(&rules, "model.1.mlp", "first", 3);
    expect(&rules, "model.", "net.", 5);
    expect(&rules, "model", "model", COUNT(table));
    expect(&rules, "a-b-c", "a/b", 6);
    expect(&rules, "all.1", "one", 7);
    expect(&rules, "all.2", "one", 7);
    expect(&rules, "star", "a*b", 8);
    expect(&rules, "", "", COUNT(table));
    name_rules_free(&rules);
}

/* An exact rule for the whole name goes before those for what it is below, whatever their order. */
static void containers_are_renamed(void **state)
{
    (void)state;
    static const dcp_rename given[] = {
        {DCP_RENAME_GLOB, "a.x*", "star.*"}, {DCP_RENAME_EXACT, "a", "one"},
        {DCP_RENAME_EXACT, "a.b", "two"},    {DCP_RENAME_EXACT, "a.b.c", "three"},
        {DCP_RENAME_EXACT, "d.e", ""},       {DCP_RENAME_EXACT, "d", "four"},
    };
    struct name_rules rules;
    assert_int_equal(name_rules_init(&rules, given, COUNT(given)), DCP_OK);
    expect(&rules, "a", "one", 1);
    expect(&rules, "a.z", "one.z", 1);
    expect(&rules, "a.xz", "star.z", 0);
    expect(&rules, "a.b", "two", 2);
    expect(&rules, "a.b.d", "one.b.d", 1);
    expect(&rules, "a.b.c", "three", 3);
    expect(&rules, "ab.c", "ab.c", COUNT(given));
    expect(&rules, "d.e.f", ".f", 4);
    expect(&rules, "d.f", "four.f", 5);
    name_rules_free(&rules);
}

static void prefixes_are_put_and_cut(void **state)
{
    (void)state;
    static const dcp_rename put[] = {{DCP_RENAME_PREFIX, "", "foo_"}};
    static const dcp_rename cut[] = {{DCP_RENAME_PREFIX, "module.", ""}};
    struct name_rules rules;
    assert_int_equal(name_rules_init(&rules, put, 1), DCP_OK);
    expect(&rules, "model.w", "foo_model.w", 0);
    expect(&rules, "", "foo_", 0);
    name_rules_free(&rules);
    assert_int_equal(name_rules_init(&rules, cut, 1), DCP_OK);
    expect(&rules, "module.w", "w", 0);
    expect(&rules, "module.", "", 0);
    expect(&rules, "w", "w", 1);
    name_rules_free(&rules);
    assert_int_equal(name_rules_init(&rules, NULL, 0), DCP_OK);
    expect(&rules, "w", "w", 0);
    name_rules_free(&rules);
}

/* What the stars took, put back into the same pattern, is the name. */
static void stars_give_back_what_they_took(void **state)
{
    (void)state;
    uint64_t seed = 3;
    int matched = 0;
    for (int i = 0; i < 50000; i++) {
        char pattern[7] = "", name[9] = "";
        for (size_t k = (size_t)random_below(&seed, sizeof pattern); k-- > 0;)
            pattern[k] = "ab*"[random_below(&seed, 3)];
        for (size_t k = (size_t)random_below(&seed, sizeof name); k-- > 0;)
            name[k] = "ab"[random_below(&seed, 2)];
        dcp_rename rule = {DCP_RENAME_GLOB, pattern, pattern};
        struct name_rules rules;
        assert_int_equal(name_rules_init(&rules, &rule, 1), DCP_OK);
        const char *stored;
        size_t which;
        assert_int_equal(name_rules_apply(&rules, name, &stored, &which), DCP_OK);
        assert_string_equal(stored, name);
        matched += which == 0;
        name_rules_free(&rules);
    }
    assert_true(matched > 1000);
}

/* A table that names each parameter is as cheap as one rule. */
static void long_tables_are_looked_up(void **state)
{
    (void)state;
    enum { RULES = 30000 };
    dcp_rename *rules_given = calloc(RULES, sizeof *rules_given);
    char(*names)[2][16] = calloc(RULES, sizeof *names);
    assert_true(rules_given != NULL && names != NULL);
    for (int i = 0; i < RULES; i++) {
        snprintf(names[i][0], sizeof names[i][0], "from.%d", i);
        snprintf(names[i][1], sizeof names[i][1], "to.%d", i);
        rules_given[i] = (dcp_rename){DCP_RENAME_EXACT, names[i][0], names[i][1]};
    }
    struct name_rules rules;
    assert_int_equal(name_rules_init(&rules, rules_given, RULES), DCP_OK);
    for (size_t i = 0; i < RULES; i++)
        expect(&rules, names[i][0], names[i][1], i);
    name_rules_free(&rules);
    free(names);
    free(rules_given);
}

static void expect_refused(dcp_rename rule, const char *message)
{
    dcp_rename given[] = {{DCP_RENAME_EXACT, "a", "b"}, rule};
    struct name_rules rules;
    assert_int_equal(name_rules_init(&rules, given, 2), DCP_ERR_ARGUMENT);
    assert_string_equal(dcp_error_message(), message);
    name_rules_free(&rules);
}

static void wrong_rules_are_refused(void **state)
{
    (void)state;
    struct name_rules rules;
    assert_int_equal(name_rules_init(&rules, NULL, 2), DCP_ERR_ARGUMENT);
    assert_string_equal(dcp_error_message(), "renames is NULL, expected 2 rules");
    name_rules_free(&rules);
    expect_refused((dcp_rename){DCP_RENAME_EXACT, NULL, "b"}, "renames[1].wanted is NULL");
    expect_refused((dcp_rename){DCP_RENAME_PREFIX, "a", NULL}, "renames[1].stored is NULL");
    expect_refused((dcp_rename){DCP_RENAME_PREFIX, "a", "\xff"}, "renames[1] is not UTF-8");
    expect_refused((dcp_rename){(dcp_rename_kind)7, "a", "b"},
                   "renames[1].kind is 7, which is not a defined value");
    expect_refused((dcp_rename){DCP_RENAME_GLOB, "a[", "b"},
                   "renames[1].wanted, \"a[\", has a \"[\" without its \"]\"");
    expect_refused((dcp_rename){DCP_RENAME_GLOB, "a.[*]*", "b.*.*"},
                   "renames[1].stored, \"b.*.*\", has 2 stars, but \"a.[*]*\" captures only 1");
}

static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        struct name_rules rules;
        const char *stored;
        size_t rule;
        failing_allocator_install(n, false);
        dcp_status status = name_rules_init(&rules, table, COUNT(table));
        if (status == DCP_OK)
            status = name_rules_apply(&rules, "model.0.attn.wq", &stored, &rule);
        name_rules_free(&rules);
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
        cmocka_unit_test(the_first_rule_that_matches_wins),
        cmocka_unit_test(containers_are_renamed),
        cmocka_unit_test(prefixes_are_put_and_cut),
        cmocka_unit_test(stars_give_back_what_they_took),
        cmocka_unit_test(long_tables_are_looked_up),
        cmocka_unit_test(wrong_rules_are_refused),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
