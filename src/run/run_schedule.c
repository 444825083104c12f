/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/run_schedule.h"

#include <math.h>

/* The library does without libm. */
static double most(double a, double b)
{
    return a > b ? a : b;
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

/* Newton's method, from above. Of numbers from 0 on. */
static double square_root(double number)
{
    double root = most(number, 1), before;
    if (number <= 0)
        return 0;
    do {
        before = root;
        root = (root + number / root) / 2;
    } while (root < before);
    return before;
}

bool run_schedule_is_timed(const struct run_schedule *schedule)
{
    return schedule->every_seconds > 0 || schedule->failure_seconds > 0 ||
           schedule->overhead_percent > 0;
}

bool run_schedule_wants_step(const struct run_schedule *schedule, int64_t step)
{
    return (schedule->every_steps > 0 && step % schedule->every_steps == 0) ||
           run_schedule_is_last(schedule, step);
}

bool run_schedule_is_last(const struct run_schedule *schedule, int64_t step)
{
    return schedule->last_step > 0 && step >= schedule->last_step;
}

double run_schedule_daly(double cost, double failure_seconds)
{
    if (cost >= 2 * failure_seconds)
        return failure_seconds;
    double ratio = cost / (2 * failure_seconds);
    return square_root(2 * cost * failure_seconds) * (1 + square_root(ratio) / 3 + ratio / 9);
}

/* The least time between two saves that the limit of overhead allows. */
static double least_interval(const struct run_schedule *schedule)
{
    if (schedule->overhead_percent <= 0 || schedule->cost < 0)
        return 0;
    return schedule->cost * 100 / schedule->overhead_percent;
}

double run_schedule_interval(const struct run_schedule *schedule)
{
    double interval = schedule->every_seconds > 0 ? schedule->every_seconds : HUGE_VAL;
    bool limit_alone = schedule->every_seconds <= 0 && schedule->failure_seconds <= 0 &&
                       schedule->every_steps <= 0;
    if (schedule->failure_seconds > 0)
        interval = least(
            interval,
            schedule->cost < 0 ? 0 : run_schedule_daly(schedule->cost, schedule->failure_seconds));
    if (limit_alone && schedule->overhead_percent > 0)
        interval = 0;
    return most(interval, least_interval(schedule));
}

double run_schedule_until(const struct run_schedule *schedule, double now)
{
    double interval = schedule->wanted ? least_interval(schedule) : run_schedule_interval(schedule);
    return run_schedule_is_timed(schedule) ? most(schedule->last_begun + interval - now, 0)
                                           : HUGE_VAL;
}

bool run_schedule_is_due(const struct run_schedule *schedule, double now)
{
    return run_schedule_until(schedule, now) <= 0;
}

void run_schedule_began(struct run_schedule *schedule, double now)
{
    schedule->last_begun = now;
    schedule->wanted = false;
}

void run_schedule_measured(struct run_schedule *schedule, double seconds)
{
    schedule->cost = schedule->cost < 0 ? seconds : (schedule->cost + seconds) / 2;
}
