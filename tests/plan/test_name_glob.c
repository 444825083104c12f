/* SPDX-License-Identifier: BSD-3-Clause */
#include <fnmatch.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan/names/name_glob.h"
#include "samples.h"

static void names_match_or_not(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        const char *name;
        bool matches;
    } cases[] = {
        {"", "", true},
        {"", "a", false},
        {"a", "", false},
        {"model.w", "model.w", true},
        {"model.w", "model.w2", false},
        {"model.w2", "model.w", false},
        {"*", "", true},
        {"*", "a.b.c", true},
        {"model.*", "model.layers.0.w", true},
        {"model.*", "model", false},
        {"*.bias", "a.b.bias", true},
        {"*.bias", "a.b.bias.c", false},
        {"a*b*c", "abbcc", true},
        {"a*b*c", "acb", false},
        {"**", "x", true},
        {"layers.?.w", "layers.3.w", true},
        {"layers.?.w", "layers.13.w", false},
        {"?", "\xc3\xa9", true},
        {"??", "\xc3\xa9", false},
        {"[\xc3\xa0-\xc3\xbf]", "\xc3\xa9", true},
        {"[a-z]", "\xc3\xa9", false},
        {"[!a-z]", "\xc3\xa9", true},
        {"w[0-9]", "w7", true},
        {"w[0-9]", "wx", false},
        {"w[!0-9]", "wx", true},
        {"w[^0-9]", "w7", false},
        {"w[!0-9]", "w", false},
        {"[*]", "*", true},
        {"[*]", "a", false},
        {"[]]", "]", true},
        {"[!]]", "]", false},
        {"[a-]", "-", true},
        {"[-a]", "-", true},
        {"a]", "a]", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_null(glob_fault(cases[i].pattern));
        if (glob_match(cases[i].pattern, cases[i].name, NULL) != cases[i].matches)
            fail_msg("\"%s\" and \"%s\"", cases[i].pattern, cases[i].name);
    }
}

static void faults_are_reported(void **state)
{
    (void)state;
    static const char *const unclosed[] = {"[",   "a[", "[]",    "[!]", "[^",
                                           "[a-", "[a", "x[a-z", "[]["};
    for (size_t i = 0; i < sizeof unclosed / sizeof unclosed[0]; i++)
        assert_string_equal(glob_fault(unclosed[i]), "a \"[\" without its \"]\"");
    assert_string_equal(glob_fault("a[z-a]"), "a range that runs backwards");
}

static void expect_captures(const char *pattern, const char *name, const char *expected)
{
    struct glob_capture captures[8];
    char text[256] = "";
    assert_true(glob_match(pattern, name, captures));
    for (size_t i = 0; i < glob_star_count(pattern); i++) {
        strncat(text, captures[i].text, captures[i].length);
        strcat(text, "|");
    }
    assert_string_equal(text, expected);
}

static void stars_take_what_they_must(void **state)
{
    (void)state;
    expect_captures("model.*", "model.a.b", "a.b|");
    expect_captures("*.*", "a.b.c", "a|b.c|");
    expect_captures("*.w", "a.w.w", "a.w|");
    expect_captures("*a*a*", "bababa", "b|b|ba|");
    expect_captures("**", "ab", "|ab|");
    expect_captures("l.?.*", "l.3.w", "w|");
    expect_captures("[*]*", "*x", "x|");
    expect_captures("plain", "plain", "");
    assert_int_equal(glob_star_count("*[*]?[]*]*"), 2);
}

/* Against the C library, over all short patterns of the letters that matter. */
static void fnmatch_agrees(void **state)
{
    (void)state;
    static const char letters[] = "ab*?[]!-";
    uint64_t seed = 7;
    int matched = 0;
    for (int i = 0; i < 200000; i++) {
        char pattern[9], name[9];
        size_t pattern_length = (size_t)random_below(&seed, sizeof pattern);
        size_t name_length = (size_t)random_below(&seed, 7);
        for (size_t k = 0; k < pattern_length; k++)
            pattern[k] = letters[random_below(&seed, 8)];
        for (size_t k = 0; k < name_length; k++)
            name[k] = "ab]-"[random_below(&seed, 4)];
        pattern[pattern_length] = name[name_length] = '\0';
        if (glob_fault(pattern) != NULL)
            continue;
        bool expected = fnmatch(pattern, name, FNM_NOESCAPE) == 0;
        if (glob_match(pattern, name, NULL) != expected)
            fail_msg("\"%s\" and \"%s\": expected %d", pattern, name, expected);
        matched += expected;
    }
    assert_true(matched > 1000);
}

/* Tried one after the other, the ways to divide the name among the stars would be without end. */
static void many_stars_end_soon(void **state)
{
    (void)state;
    char pattern[201], name[20001];
    for (size_t i = 0; i < 200; i += 2)
        memcpy(pattern + i, "*a", 2);
    pattern[199] = 'b';
    pattern[200] = '\0';
    memset(name, 'a', 20000);
    name[20000] = '\0';
    assert_false(glob_match(pattern, name, NULL));
    name[19999] = 'b';
    assert_true(glob_match(pattern, name, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_match_or_not),        cmocka_unit_test(faults_are_reported),
        cmocka_unit_test(stars_take_what_they_must), cmocka_unit_test(fnmatch_agrees),
        cmocka_unit_test(many_stars_end_soon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
