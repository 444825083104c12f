/* SPDX-License-Identifier: BSD-3-Clause */
/* Time. The source is a seam: tests replace it. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

struct clock_source {
    int64_t (*monotonic_ns)(void *context);
    int64_t (*wall_ns)(void *context); /* since 1970, UTC */
    void (*sleep_ns)(void *context, int64_t duration);
    void *context;
};

/* NULL restores the system's clock. Not thread-safe. */
void clock_replace(const struct clock_source *source);
int64_t clock_monotonic_ns(void);
int64_t clock_wall_ns(void);
void clock_sleep_ns(int64_t duration);

struct deadline {
    int64_t at_ns; /* monotonic */
};

struct deadline deadline_after(double seconds); /* saturates */
bool deadline_passed(struct deadline deadline);
double deadline_left(struct deadline deadline); /* seconds, >= 0 */
/* The deadline on the system's monotonic clock, for condition variables. */
struct timespec deadline_timespec(struct deadline deadline);

#endif
