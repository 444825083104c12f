/* SPDX-License-Identifier: BSD-3-Clause */
/* When a run saves: arithmetic alone. Times are seconds of the monotonic clock, of rank 0. */
#ifndef RUN_RUN_SCHEDULE_H
#define RUN_RUN_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

struct run_schedule {
    /* As the options say; 0: not looked at. */
    int64_t every_steps, last_step;
    double every_seconds, failure_seconds, overhead_percent;

    double cost;       /* that a save takes from training, measured; < 0: not known */
    double last_begun; /* when the last save began, or the run was opened */
    bool wanted;       /* a save that the step's number wanted was put off */
};

/* Whether the clock has a say. */
bool run_schedule_is_timed(const struct run_schedule *schedule);
/* Whether the step's number wants a save, which every rank knows by itself. */
bool run_schedule_wants_step(const struct run_schedule *schedule, int64_t step);
/* Whether the step is saved whatever its cost. */
bool run_schedule_is_last(const struct run_schedule *schedule, int64_t step);

/* The interval that the clock wants; 0: none. */
double run_schedule_interval(const struct run_schedule *schedule);
/* Whether a save is due at this time by the clock, and by a step that was put off. */
bool run_schedule_is_due(const struct run_schedule *schedule, double now);
/* Seconds until the clock may want a save; 0: at once; HUGE_VAL: never. */
double run_schedule_until(const struct run_schedule *schedule, double now);

void run_schedule_began(struct run_schedule *schedule, double now);
/* What a save has cost: the mean of it and what was known. */
void run_schedule_measured(struct run_schedule *schedule, double seconds);

/* From the beginning of a save to that of the next, so that the least time is lost: Daly's
 * refinement of Young's formula (J. T. Daly, A higher order estimate of the optimum checkpoint
 * interval for restart dumps, 2006, equation 37), whose interval ends where the save begins. */
double run_schedule_daly(double cost, double failure_seconds);

#endif
