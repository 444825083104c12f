/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/io_priority.h"
#include "base/thread.h"

static long own(void)
{
    return syscall(SYS_ioprio_get, 1, 0);
}

static void *see(void *context)
{
    *(long *)context = own();
    return NULL;
}

static void test_is_lowered_and_given_back(void **state)
{
    (void)state;
    static const dcp_io_priority priorities[] = {DCP_IO_PRIORITY_LOW, DCP_IO_PRIORITY_IDLE};
    static const long numbers[] = {2 << 13 | 7, 3 << 13};
    /* What it was: nothing of its own, and something. */
    for (int set = 0; set < 2; set++) {
        if (set && syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 3) != 0)
            skip();
        long before = own();
        for (size_t i = 0; i < 2; i++) {
            int aside = io_priority_enter(priorities[i]);
            if (aside < 0)
                skip();
            assert_int_equal(io_priority_number(priorities[i]), numbers[i]);
            assert_int_equal(own(), numbers[i]);
            struct thread thread;
            long seen = 0;
            assert_int_equal(thread_start(&thread, see, &seen), 0);
            thread_join(&thread);
            assert_int_equal(seen, numbers[i]);
            io_priority_leave(aside);
            assert_int_equal(own(), before);
        }
    }
}

static void test_is_kept(void **state)
{
    (void)state;
    long before = own();
    int aside = io_priority_enter(DCP_IO_PRIORITY_KEPT);
    assert_int_equal(own(), before);
    io_priority_leave(aside);
    assert_int_equal(own(), before);
    assert_int_equal(io_priority_number(DCP_IO_PRIORITY_KEPT), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_is_kept),
                                       cmocka_unit_test(test_is_lowered_and_given_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
