/* SPDX-License-Identifier: BSD-3-Clause */
/* Every file operation of a save with extra files fails, and is the last before a crash: of the
 * extra files there are the old ones or the new ones, as of the checkpoint. With an argument of n
 * only every n-th operation does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fault/operation_faults.h"
#include "fault/versions.h"

static int with_extra_files(void **state)
{
    (void)state;
    version_give_files(true);
    return 0;
}

static void test_save(void **state)
{
    (void)state;
    loop_over_faults(VERSION_NONE, 1, false);
    loop_over_faults(1, 3, false);
}

static void test_crash(void **state)
{
    (void)state;
    loop_over_crashes(VERSION_NONE);
    loop_over_crashes(1);
}

static void test_asynchronous_save(void **state)
{
    (void)state;
    version_save_course(VERSION_IN_BACKGROUND);
    loop_over_faults(1, 3, false);
    version_save_course(VERSION_AT_ONCE);
}

static void test_hooked_save(void **state)
{
    (void)state;
    version_save_hooked(VERSION_BY_HOOKS);
    loop_over_faults(1, 3, false);
    version_save_hooked(VERSION_WITHOUT_HOOKS);
}

static void test_save_into_own_files(void **state)
{
    (void)state;
    version_save_hooked(VERSION_OWN_FILES);
    loop_over_faults(1, 3, true);
    version_save_hooked(VERSION_WITHOUT_HOOKS);
}

int main(int argc, char **argv)
{
    if (!fault_stride_read(argc, argv))
        return 2;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_save),
        cmocka_unit_test(test_crash),
        cmocka_unit_test(test_asynchronous_save),
        cmocka_unit_test(test_hooked_save),
        cmocka_unit_test(test_save_into_own_files),
    };
    return cmocka_run_group_tests(tests, with_extra_files, NULL);
}
