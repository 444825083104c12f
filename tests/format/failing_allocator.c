/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "dcp/environment.h"
#include "failing_allocator.h"

static struct {
    size_t asked;
    size_t fail_at;
    size_t held;
} counts;

static void *allocate(void *context, size_t size)
{
    (void)context;
    if (counts.asked++ == counts.fail_at)
        return NULL;
    void *block = malloc(size);
    counts.held += block != NULL;
    return block;
}

static void *reallocate(void *context, void *block, size_t size)
{
    (void)context;
    if (counts.asked++ == counts.fail_at)
        return NULL;
    void *moved = realloc(block, size);
    counts.held += block == NULL && moved != NULL;
    return moved;
}

static void release(void *context, void *block)
{
    (void)context;
    counts.held -= block != NULL;
    free(block);
}

void failing_allocator_install(size_t fail_at)
{
    const dcp_allocator allocator = {allocate, reallocate, release, NULL};
    counts.asked = 0;
    counts.fail_at = fail_at;
    counts.held = 0;
    assert_int_equal(dcp_set_allocator(&allocator), DCP_OK);
}

size_t failing_allocator_remove(void)
{
    dcp_set_allocator(NULL);
    assert_int_equal(counts.held, 0);
    return counts.asked;
}
