/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "format/metadata/relative_path.h"

static void accepts_names_below_the_directory(void **state)
{
    (void)state;
    static const char *const paths[] = {"__0_0.distcp", "a/b/c",   "...",  "..a",
                                        "a..",          ".hidden", "a b",  "\xc3\xa9",
                                        "x/.y/..z",     "1",       "ab:c", "a/b:c"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        assert_int_equal(relative_path_check(paths[i], strlen(paths[i])), DCP_OK);
}

static void refuses_every_way_out(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        const char *reason;
    } cases[] = {{"", "it is empty"},
                 {"/", "it is absolute"},
                 {"/etc/passwd", "it is absolute"},
                 {"..", "a component '.' or '..'"},
                 {".", "a component '.' or '..'"},
                 {"../a", "a component '.' or '..'"},
                 {"a/../b", "a component '.' or '..'"},
                 {"a/./b", "a component '.' or '..'"},
                 {"a/..", "a component '.' or '..'"},
                 {"a//b", "an empty component"},
                 {"a/", "an empty component"},
                 {"a\\b", "a backslash"},
                 {"C:x", "a drive letter"},
                 {"\xff", "it is not UTF-8"},
                 {"\xed\xa0\x80", "it is not UTF-8"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(relative_path_check(cases[i].path, strlen(cases[i].path)), DCP_ERR_FORMAT);
        assert_non_null(strstr(dcp_error_message(), cases[i].reason));
    }
    assert_int_equal(relative_path_check("a\0b", 3), DCP_ERR_FORMAT);
    assert_non_null(strstr(dcp_error_message(), "it contains NUL"));
    static char too_long[4096];
    memset(too_long, 'x', sizeof too_long);
    assert_int_equal(relative_path_check(too_long, sizeof too_long - 1), DCP_OK);
    assert_int_equal(relative_path_check(too_long, sizeof too_long), DCP_ERR_FORMAT);
    assert_non_null(strstr(dcp_error_message(), "it is too long"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_names_below_the_directory),
        cmocka_unit_test(refuses_every_way_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
