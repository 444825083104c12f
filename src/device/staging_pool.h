/* SPDX-License-Identifier: BSD-3-Clause */
/* Host memory that data is copied into before it is written: made once and kept from save to save,
 * as fresh memory costs many times the copy; page-locked where a device gains by it. */
#ifndef DEVICE_STAGING_POOL_H
#define DEVICE_STAGING_POOL_H

#include <stddef.h>

#include "dcp/device.h"

/* All zero is a pool without memory. For one staging at a time. */
struct staging_pool {
    unsigned char *memory; /* aligned to a page */
    size_t size;
    bool locked;
    dcp_device lock; /* who locked it */
};

/* Makes the pool at least as large, and its pages present. device: who is to lock it, as far as it
 * can; NULL: nobody. A pool that is large enough stays as it is. It is nobody's memory in the sense
 * of base/memory_account.h. */
dcp_status staging_pool_reserve(struct staging_pool *pool, size_t size, const dcp_device *device);
void staging_pool_free(struct staging_pool *pool);

#endif
