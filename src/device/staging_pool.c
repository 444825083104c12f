/* SPDX-License-Identifier: BSD-3-Clause */
#include "device/staging_pool.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/memory_account.h"
#include "base/thread.h"
#include "state/device_memory.h"

/* Bytes that one thread makes present at a time. */
#define PORTION ((size_t)32 << 20)

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

uint64_t staging_pool_memory(uint64_t size)
{
    return memory_large_size(size);
}

uint64_t staging_pool_taken(const struct staging_pool *pool)
{
    return pool->memory ? staging_pool_memory(pool->size) : 0;
}

static bool pay(const struct staging_pool *pool, uint64_t size)
{
    return memory_account_charge(pool->payer, (size_t)staging_pool_memory(size));
}

/* Charges the pool as a whole to the current account, and not its blocks, as the next save has
 * another account. */
static unsigned char *allocate(struct staging_pool *pool, size_t size)
{
    if (!pay(pool, size))
        return NULL;
    struct memory_account *before = memory_account_enter(NULL);
    /* Large pages are also cheaper to make present and to copy into. */
    unsigned char *memory = memory_allocate_large(size);
    memory_account_enter(before);
    if (!memory)
        memory_account_discharge(pool->payer, (size_t)staging_pool_memory(size));
    return memory;
}

static dcp_status grow(struct staging_pool *pool, size_t size, size_t thread_count)
{
    staging_pool_free(pool);
    pool->memory = allocate(pool, size);
    if (!pool->memory)
        return error_no_memory(size, "staging");
    pool->size = size;
    return thread_run((size + PORTION - 1) / PORTION, thread_count, make_present, pool);
}

void staging_pool_enter(struct staging_pool *pool, struct memory_account *account)
{
    pool->payer = account;
    if (pool->memory && !pay(pool, pool->size)) {
        pool->payer = NULL;
        staging_pool_free(pool);
        pool->payer = account;
    }
}

void staging_pool_leave(struct staging_pool *pool)
{
    memory_account_discharge(pool->payer, (size_t)staging_pool_taken(pool));
    pool->payer = NULL;
}

dcp_status staging_pool_reserve(struct staging_pool *pool, size_t size, const dcp_device *device,
                                size_t thread_count)
{
    bool wants_lock = device && device_overlaps(device);
    dcp_status status = DCP_OK;
    if (pool->memory && size <= pool->size && (pool->locked || !wants_lock))
        return DCP_OK;
    if (!pool->memory || size > pool->size)
        status = grow(pool, size > 0 ? size : 1, thread_count);
    if (status == DCP_OK)
        status = lock(pool, device);
    if (status != DCP_OK)
        staging_pool_free(pool);
    return status;
}

void staging_pool_free(struct staging_pool *pool)
{
    struct memory_account *payer = pool->payer;
    if (pool->locked)
        pool->lock.operations->page_unlock(&pool->lock, pool->memory);
    memory_account_discharge(payer, (size_t)staging_pool_taken(pool));
    memory_release_aligned(pool->memory);
    *pool = (struct staging_pool){.payer = payer};
}
