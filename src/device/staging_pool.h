/* SPDX-License-Identifier: BSD-3-Clause */
/* Host memory that data is copied into before it is written: made once and kept from save to save,
 * as fresh memory costs many times the copy; page-locked where a device gains by it. */
#ifndef DEVICE_STAGING_POOL_H
#define DEVICE_STAGING_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "base/memory_account.h"
#include "dcp/device.h"

/* All zero is a pool without memory. For one staging at a time. */
struct staging_pool {
    unsigned char *memory; /* aligned to a page */
    size_t size;
    bool locked;
    dcp_device lock;              /* who locked it */
    struct memory_account *payer; /* of the save that uses it; NULL: nobody */
};

/* What the pool has from here on is charged to the account, and what it has already, if that is
 * within the account's limit; else it is given back. */
void staging_pool_enter(struct staging_pool *pool, struct memory_account *account);
/* From here on it is nobody's memory, and stays. */
void staging_pool_leave(struct staging_pool *pool);
/* Makes the pool at least as large, and its pages present, by so many threads. device: who is to
 * lock it, as far as it can; NULL: nobody. A pool that is large enough stays as it is. */
dcp_status staging_pool_reserve(struct staging_pool *pool, size_t size, const dcp_device *device,
                                size_t thread_count);
/* What a pool of a size takes of memory. */
uint64_t staging_pool_memory(uint64_t size);
/* What the pool takes now. */
uint64_t staging_pool_taken(const struct staging_pool *pool);
/* Gives the memory back; who pays stays. */
void staging_pool_free(struct staging_pool *pool);

#endif
