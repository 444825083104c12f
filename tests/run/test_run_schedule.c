/* SPDX-License-Identifier: BSD-3-Clause */
/* When a run saves: intervals by steps, by the clock, by cost. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "run/run_schedule.h"

static void steps_are_multiples(void **state)
{
    (void)state;
    const struct run_schedule schedule = {.every_steps = 10, .last_step = 25, .cost = -1};
    assert_false(run_schedule_wants_step(&schedule, 9));
    assert_true(run_schedule_wants_step(&schedule, 10));
    assert_true(run_schedule_wants_step(&schedule, 25));
    assert_true(run_schedule_wants_step(&schedule, 26));
    assert_false(run_schedule_is_timed(&schedule));
    assert_true(isinf(run_schedule_until(&schedule, 1e9)));
    assert_false(run_schedule_is_due(&schedule, 1e9));
}

static void seconds_count_from_the_beginning_of_a_save(void **state)
{
    (void)state;
    struct run_schedule schedule = {.every_seconds = 60, .cost = -1, .last_begun = 100};
    assert_false(run_schedule_is_due(&schedule, 159));
    assert_true(run_schedule_is_due(&schedule, 160));
    run_schedule_began(&schedule, 170);
    assert_true(fabs(run_schedule_until(&schedule, 180) - 50) < 1e-9);
}

static void daly_is_young_where_saves_are_cheap(void **state)
{
    (void)state;
    /* sqrt(2 * 60 * 86400) = 3220 s, and about 2 % more with Daly's terms. */
    assert_true(fabs(run_schedule_daly(60, 86400) - 3240) < 5);
    assert_true(fabs(run_schedule_daly(1e-6, 86400) - sqrt(2e-6 * 86400)) < 1e-3);
    assert_true(run_schedule_daly(400, 100) <= 100);
    struct run_schedule schedule = {.failure_seconds = 86400, .cost = -1};
    assert_true(run_schedule_is_due(&schedule, 0)); /* to find out what it costs */
    run_schedule_began(&schedule, 0);
    run_schedule_measured(&schedule, 60);
    assert_false(run_schedule_is_due(&schedule, 3230));
    assert_true(run_schedule_is_due(&schedule, 3250));
}

static void overhead_is_a_limit(void **state)
{
    (void)state;
    struct run_schedule schedule = {.overhead_percent = 1, .cost = -1};
    assert_true(run_schedule_is_due(&schedule, 0));
    run_schedule_began(&schedule, 0);
    run_schedule_measured(&schedule, 2);
    assert_false(run_schedule_is_due(&schedule, 199));
    assert_true(run_schedule_is_due(&schedule, 201));
    run_schedule_measured(&schedule, 4); /* it adapts: 3 s */
    assert_false(run_schedule_is_due(&schedule, 299));
    /* Of steps it puts off what comes too early, and nothing else wants a save. */
    schedule.every_steps = 5;
    assert_false(run_schedule_is_due(&schedule, 200));
    schedule.wanted = true;
    assert_false(run_schedule_is_due(&schedule, 200));
    assert_true(run_schedule_is_due(&schedule, 301));
    run_schedule_began(&schedule, 301);
    assert_false(schedule.wanted);
    /* The clock's interval is not shorter than the limit. */
    schedule.every_seconds = 10;
    assert_false(run_schedule_is_due(&schedule, 320));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_multiples),
        cmocka_unit_test(seconds_count_from_the_beginning_of_a_save),
        cmocka_unit_test(daly_is_young_where_saves_are_cheap),
        cmocka_unit_test(overhead_is_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
