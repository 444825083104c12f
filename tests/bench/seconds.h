/* SPDX-License-Identifier: BSD-3-Clause */
/* Clocks in seconds. */
#ifndef BENCH_SECONDS_H
#define BENCH_SECONDS_H

#include <time.h>

static inline double seconds_on(clockid_t clock)
{
    struct timespec time;

    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static inline double seconds_now(void)
{
    return seconds_on(CLOCK_MONOTONIC);
}

#endif
