/* SPDX-License-Identifier: BSD-3-Clause */
#include "fault/slow_clock.h"

#include <stdatomic.h>
#include <stddef.h>

#include "base/clock.h"

#define STEP_NS 10000000

static atomic_llong now_ns;

static int64_t look(void *context)
{
    (void)context;
    return atomic_fetch_add(&now_ns, STEP_NS) + STEP_NS;
}

static void sleep_well(void *context, int64_t duration)
{
    (void)context;
    atomic_fetch_add(&now_ns, duration);
}

void slow_clock_install(void)
{
    static const struct clock_source slow = {look, look, sleep_well, NULL};
    clock_replace(&slow);
}

void slow_clock_remove(void)
{
    clock_replace(NULL);
}
