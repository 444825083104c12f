/* SPDX-License-Identifier: BSD-3-Clause */
#include "fault/failing_allocator.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "dcp/environment.h"

static struct {
    long fail_at;
    bool from_then_on;
    atomic_long asked;
    atomic_long live;
    atomic_bool reached;
} state;

static bool refused(void)
{
    long number = atomic_fetch_add(&state.asked, 1) + 1;
    if (state.fail_at == 0 ||
        (state.from_then_on ? number < state.fail_at : number != state.fail_at))
        return false;
    atomic_store(&state.reached, true);
    return true;
}

static void *failing_allocate(void *context, size_t size)
{
    (void)context;
    void *block = refused() ? NULL : malloc(size);
    if (block != NULL)
        atomic_fetch_add(&state.live, 1);
    return block;
}

static void *failing_reallocate(void *context, void *block, size_t size)
{
    (void)context;
    if (refused())
        return NULL;
    void *moved = realloc(block, size);
    if (moved != NULL && block == NULL)
        atomic_fetch_add(&state.live, 1);
    return moved;
}

static void failing_release(void *context, void *block)
{
    (void)context;
    if (block != NULL)
        atomic_fetch_sub(&state.live, 1);
    free(block);
}

void failing_allocator_install(long n, bool from_then_on)
{
    static const dcp_allocator allocator = {failing_allocate, failing_reallocate, failing_release,
                                            NULL};
    state.fail_at = n;
    state.from_then_on = from_then_on;
    atomic_store(&state.asked, 0);
    atomic_store(&state.live, 0);
    atomic_store(&state.reached, false);
    dcp_set_allocator(&allocator);
}

bool failing_allocator_reached(void)
{
    return atomic_load(&state.reached);
}

long failing_allocator_count(void)
{
    return atomic_load(&state.asked);
}

long failing_allocator_remove(void)
{
    dcp_set_allocator(NULL);
    return atomic_load(&state.live);
}
