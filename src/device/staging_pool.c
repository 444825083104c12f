/* SPDX-License-Identifier: BSD-3-Clause */
#include "device/staging_pool.h"

#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/memory_account.h"
#include "base/thread.h"
#include "state/device_memory.h"

/* Large pages are cheaper to make present and to copy into. */
#define LARGE_PAGE ((size_t)2 << 20)
/* Bytes that one thread makes present at a time. */
#define PORTION ((size_t)32 << 20)
/* More do not make memory come faster. */
#define THREADS 4

static dcp_status make_present(void *context, size_t index)
{
    struct staging_pool *pool = context;
    size_t start = index * PORTION;
    memset(pool->memory + start, 0, pool->size - start < PORTION ? pool->size - start : PORTION);
    return DCP_OK;
}

static dcp_status lock(struct staging_pool *pool, const dcp_device *device)
{
    if (!device || !device_overlaps(device))
        return DCP_OK;
    RETURN_IF_ERROR(
        device_end(device, device->operations->page_lock(device, pool->memory, pool->size)));
    pool->locked = true;
    pool->lock = *device;
    return DCP_OK;
}

static dcp_status grow(struct staging_pool *pool, size_t size)
{
    size_t alignment = size >= LARGE_PAGE ? LARGE_PAGE : FILE_PAGE;
    staging_pool_free(pool);
    pool->memory = memory_allocate_aligned(alignment, size);
    if (!pool->memory)
        return error_no_memory(size, "staging");
    pool->size = size;
    if (size >= LARGE_PAGE)
        madvise(pool->memory, size & ~(LARGE_PAGE - 1), MADV_HUGEPAGE);
    return thread_run((size + PORTION - 1) / PORTION, THREADS, make_present, pool);
}

dcp_status staging_pool_reserve(struct staging_pool *pool, size_t size, const dcp_device *device)
{
    bool wants_lock = device && device_overlaps(device);
    dcp_status status = DCP_OK;
    if (pool->memory && size <= pool->size && (pool->locked || !wants_lock))
        return DCP_OK;
    struct memory_account *before = memory_account_enter(NULL);
    if (!pool->memory || size > pool->size)
        status = grow(pool, size > 0 ? size : 1);
    if (status == DCP_OK)
        status = lock(pool, device);
    if (status != DCP_OK)
        staging_pool_free(pool);
    memory_account_enter(before);
    return status;
}

void staging_pool_free(struct staging_pool *pool)
{
    if (pool->locked)
        pool->lock.operations->page_unlock(&pool->lock, pool->memory);
    memory_release_aligned(pool->memory);
    *pool = (struct staging_pool){0};
}
