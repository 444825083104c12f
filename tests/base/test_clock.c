/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "base/clock.h"

struct fake {
    int64_t now;
};

static int64_t fake_now(void *context)
{
    return ((struct fake *)context)->now;
}

static void fake_sleep(void *context, int64_t duration)
{
    ((struct fake *)context)->now += duration;
}

static struct fake fake;

static int use_fake(void **state)
{
    (void)state;
    fake.now = 1000;
    clock_replace(&(struct clock_source){fake_now, fake_now, fake_sleep, &fake});
    return 0;
}

static int use_system(void **state)
{
    (void)state;
    clock_replace(NULL);
    return 0;
}

static void deadlines_pass(void **state)
{
    (void)state;
    struct deadline deadline = deadline_after(1.5);
    assert_int_equal(deadline.at_ns, 1000 + 1500000000);
    assert_false(deadline_passed(deadline));
    assert_true(deadline_left(deadline) == 1.5);
    clock_sleep_ns(1500000000 - 1);
    assert_false(deadline_passed(deadline));
    clock_sleep_ns(1);
    assert_true(deadline_passed(deadline));
    assert_true(deadline_left(deadline) == 0);
    clock_sleep_ns(-5);
    assert_int_equal(clock_wall_ns(), 1000 + 1500000000);
}

static void deadlines_saturate(void **state)
{
    (void)state;
    assert_int_equal(deadline_after(INFINITY).at_ns, INT64_MAX);
    assert_int_equal(deadline_after(1e300).at_ns, INT64_MAX);
    assert_true(deadline_passed(deadline_after(0)));
    assert_true(deadline_passed(deadline_after(-1e300)));
    assert_true(deadline_passed(deadline_after(NAN)));
}

static void the_systems_clock_moves(void **state)
{
    (void)state;
    int64_t before = clock_monotonic_ns();
    clock_sleep_ns(2000000);
    assert_true(clock_monotonic_ns() - before >= 2000000);
    assert_true(clock_wall_ns() > INT64_C(1600000000) * 1000000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(deadlines_pass, use_fake, use_system),
        cmocka_unit_test_setup_teardown(deadlines_saturate, use_fake, use_system),
        cmocka_unit_test(the_systems_clock_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
