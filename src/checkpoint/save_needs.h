/* SPDX-License-Identifier: BSD-3-Clause */
/* What the rest of a save will take, found out when every rank has its orders and nothing has been
 * written. */
#ifndef CHECKPOINT_SAVE_NEEDS_H
#define CHECKPOINT_SAVE_NEEDS_H

#include "checkpoint/operation.h"
#include "checkpoint/save_coordinator.h"
#include "storage/shard_needs.h"

struct save_needs {
    struct shard_needs writing;
    uint64_t bytes; /* on disk, with the metadata at the coordinator */
    uint64_t files;
    uint64_t held;     /* memory that is taken now, and until the end */
    uint64_t peak;     /* of what was done up to now and of the commit */
    uint64_t smallest; /* memory with which the save works */
};

/* coordinator: NULL on the other ranks. Makes the metadata and the footers, and drops them: what
 * that takes counts as well. */
dcp_status save_needs_find(const struct operation *operation, const struct save_session *session,
                           int rank, const struct write_orders *orders,
                           const struct shard_source *sources,
                           const struct save_coordinator *coordinator,
                           const dcp_save_options *options, const struct shard_write_options *how,
                           struct save_needs *needs);
/* Memory at a time, when files are written so. */
uint64_t save_needs_memory(const struct save_needs *needs, const struct shard_write_options *how);

/* Collective: sums of bytes and files, and the largest of the smallest memories. */
dcp_status save_needs_share(dcp_group *group, const struct dcp_collective *call, int coordinator,
                            dcp_status status, const struct save_needs *mine,
                            struct save_needs *all);

#endif
