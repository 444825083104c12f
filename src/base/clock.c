/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/clock.h"

#include <errno.h>
#include <stddef.h>

#define NS_PER_SECOND INT64_C(1000000000)

static int64_t system_time(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * NS_PER_SECOND + now.tv_nsec;
}

static int64_t system_monotonic_ns(void *context)
{
    (void)context;
    return system_time(CLOCK_MONOTONIC);
}

static int64_t system_wall_ns(void *context)
{
    (void)context;
    return system_time(CLOCK_REALTIME);
}

static void system_sleep_ns(void *context, int64_t duration)
{
    (void)context;
    struct timespec left = {.tv_sec = (time_t)(duration / NS_PER_SECOND),
                            .tv_nsec = (long)(duration % NS_PER_SECOND)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

static const struct clock_source system_source = {system_monotonic_ns, system_wall_ns,
                                                  system_sleep_ns, NULL};
static struct clock_source source = {system_monotonic_ns, system_wall_ns, system_sleep_ns, NULL};

void clock_replace(const struct clock_source *replacement)
{
    source = replacement != NULL ? *replacement : system_source;
}

int64_t clock_monotonic_ns(void)
{
    return source.monotonic_ns(source.context);
}

int64_t clock_wall_ns(void)
{
    return source.wall_ns(source.context);
}

void clock_sleep_ns(int64_t duration)
{
    if (duration > 0)
        source.sleep_ns(source.context, duration);
}

struct deadline deadline_after(double seconds)
{
    int64_t now = clock_monotonic_ns();
    if (!(seconds > 0))
        return (struct deadline){now};
    double ns = seconds * (double)NS_PER_SECOND;
    /* Centuries from now, precision does not matter; overflow does. */
    if (ns >= (double)(INT64_MAX / 2) || now > INT64_MAX / 2)
        return (struct deadline){INT64_MAX};
    return (struct deadline){now + (int64_t)ns};
}

bool deadline_passed(struct deadline deadline)
{
    return clock_monotonic_ns() >= deadline.at_ns;
}

double deadline_left(struct deadline deadline)
{
    int64_t now = clock_monotonic_ns();
    return now >= deadline.at_ns ? 0 : (double)(deadline.at_ns - now) / (double)NS_PER_SECOND;
}

struct timespec deadline_timespec(struct deadline deadline)
{
    struct timespec time;
    double left = deadline_left(deadline);
    clock_gettime(CLOCK_MONOTONIC, &time);
    time.tv_sec += (time_t)left;
    time.tv_nsec += (long)((left - (double)(time_t)left) * 1e9);
    time.tv_sec += time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}
