/* SPDX-License-Identifier: BSD-3-Clause */
/* A few threads that carry out transfers, in the order in which they come. */
#ifndef STORAGE_TRANSFER_POOL_H
#define STORAGE_TRANSFER_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dcp/status.h"

/* Part of the caller's struct; must stay in place until it is no longer pending. */
struct transfer_job {
    void (*run)(struct transfer_job *job);
    bool pending; /* guarded by the pool, as what follows */
    struct transfer_job *next;
};

struct transfer_pool;

/* thread_count: at most; 0: as many as are good. */
dcp_status transfer_pool_open(uint32_t thread_count, struct transfer_pool **pool);
/* Memory that a pool takes, at most. */
uint64_t transfer_pool_memory(void);
/* Done at once, in the calling thread, if no thread could be started. */
void transfer_pool_submit(struct transfer_pool *pool, struct transfer_job *job);
void transfer_pool_wait(struct transfer_pool *pool, const struct transfer_job *job);
/* Waits for submitted jobs. NULL is allowed. */
void transfer_pool_close(struct transfer_pool *pool);

#endif
