/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/sized.h"

struct ours {
    int32_t a, b;
};

struct longer {
    int32_t a, b, c;
};

static void shorter_structs_are_extended_by_zeros(void **state)
{
    (void)state;
    struct ours ours = {7, 7};
    int32_t one = 5;
    assert_int_equal(sized_read(&ours, sizeof ours, &one, sizeof one, "options"), DCP_OK);
    assert_int_equal(ours.a, 5);
    assert_int_equal(ours.b, 0);
    assert_int_equal(sized_read(&ours, sizeof ours, NULL, 0, "options"), DCP_OK);
    assert_int_equal(ours.a, 0);
}

static void longer_structs_may_hold_only_zeros_beyond(void **state)
{
    (void)state;
    struct ours ours;
    struct longer longer = {1, 2, 0};
    assert_int_equal(sized_read(&ours, sizeof ours, &longer, sizeof longer, "options"), DCP_OK);
    assert_int_equal(ours.b, 2);
    longer.c = 1;
    assert_int_equal(sized_read(&ours, sizeof ours, &longer, sizeof longer, "options"),
                     DCP_ERR_ARGUMENT);
    assert_non_null(strstr(dcp_error_message(), "options has 12 bytes"));
}

static void results_are_cut_or_extended(void **state)
{
    (void)state;
    struct ours ours = {1, 2};
    struct longer longer = {9, 9, 9};
    int32_t one = 9;
    sized_write(&longer, sizeof longer, &ours, sizeof ours);
    assert_int_equal(longer.b, 2);
    assert_int_equal(longer.c, 0);
    sized_write(&one, sizeof one, &ours, sizeof ours);
    assert_int_equal(one, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shorter_structs_are_extended_by_zeros),
        cmocka_unit_test(longer_structs_may_hold_only_zeros_beyond),
        cmocka_unit_test(results_are_cut_or_extended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
