/* SPDX-License-Identifier: BSD-3-Clause */
/* Host memory that data is copied into before it is written. It is made once and kept from save to
 * save, as fresh memory costs many times the copy, and page-locked if that helps a device. */
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
    dcp_device lock;              /* the device that page-locked it */
    struct memory_account *payer; /* account of the save that uses it; NULL: none */
};

/* Charges the pool to the account from here on. Memory that it has already is charged too, or, if
 * the account's limit does not allow that, freed. */
void staging_pool_enter(struct staging_pool *pool, struct memory_account *account);
/* Ends the charge; the pool keeps its memory. */
void staging_pool_leave(struct staging_pool *pool);
/* Makes the pool at least so large, and its pages present, with so many threads. device: page-locks
 * the pool if it can; NULL: none. A pool that is large enough is left unchanged. */
dcp_status staging_pool_reserve(struct staging_pool *pool, size_t size, const dcp_device *device,
                                size_t thread_count);
/* The memory that a pool of this size takes. */
uint64_t staging_pool_memory(uint64_t size);
/* The memory that the pool takes now. */
uint64_t staging_pool_taken(const struct staging_pool *pool);
/* Frees the memory; the account stays set. */
void staging_pool_free(struct staging_pool *pool);

#endif
