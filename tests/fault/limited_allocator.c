/* SPDX-License-Identifier: BSD-3-Clause */
#include "fault/limited_allocator.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "dcp/environment.h"

static size_t most_held;
static atomic_size_t held;

/* The size is before the block, which stays aligned. */
static void *limited_reallocate(void *context, void *block, size_t size)
{
    size_t *old = block ? (size_t *)block - 2 : NULL;
    size_t before = old ? *old : 0;
    (void)context;
    if (size > most_held || atomic_load(&held) - before + size > most_held)
        return NULL;
    size_t *grown = realloc(old, size + 2 * sizeof *grown);
    if (!grown)
        return NULL;
    atomic_fetch_add(&held, size - before);
    *grown = size;
    return grown + 2;
}

static void *limited_allocate(void *context, size_t size)
{
    return limited_reallocate(context, NULL, size);
}

static void limited_release(void *context, void *block)
{
    (void)context;
    if (!block)
        return;
    size_t *old = (size_t *)block - 2;
    atomic_fetch_sub(&held, *old);
    free(old);
}

void limited_allocator_install(size_t most)
{
    static const dcp_allocator limited = {limited_allocate, limited_reallocate, limited_release,
                                          NULL};
    most_held = most;
    dcp_set_allocator(&limited);
}

size_t limited_allocator_held(void)
{
    return atomic_load(&held);
}
