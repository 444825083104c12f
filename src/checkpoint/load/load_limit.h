/* SPDX-License-Identifier: BSD-3-Clause */
/* Keeps a load within a memory limit. The memory that reading will take is computed when every rank
 * has its plan, before anything is read into a destination. */
#ifndef CHECKPOINT_LOAD_LOAD_LIMIT_H
#define CHECKPOINT_LOAD_LOAD_LIMIT_H

#include "checkpoint/operation/operation.h"
#include "checkpoint/share/load_sharing.h"
#include "dcp/load.h"
#include "storage/shard/shard_read_needs.h"

/* The known memory needs of one rank's load. */
struct load_limit {
    struct shard_read_needs needs;
    struct shard_read_how how; /* to read within the limit */
    uint64_t smallest;         /* the smallest sufficient limit for this rank */
    bool too_small;            /* the limit is below it */
};

/* Call before objects are read, by small plain reads. Opens the files of the plan. */
dcp_status load_limit_look(struct load_limit *limit, const struct load_sharing *sharing);
/* Call after objects have been read: finds the smallest limit. */
void load_limit_find(struct load_limit *limit, const struct operation *operation,
                     const struct load_sharing *sharing);
/* DCP_ERR_NO_MEMORY if the limit is below it. */
dcp_status load_limit_check(struct load_limit *limit, const dcp_load_options *options);
/* Chooses how to read within the limit, which must be large enough, and configures the reader. */
void load_limit_fit(struct load_limit *limit, const struct operation *operation,
                    const struct load_sharing *sharing);
/* The same if ranks have agreed to read for each other, which takes memory for each rank.
 * DCP_ERR_NO_MEMORY if that exceeds the limit; then each rank should read for itself. */
dcp_status load_limit_fit_sharing(struct load_limit *limit, const struct operation *operation,
                                  const struct load_sharing *sharing,
                                  const struct load_share *share);
/* Collective; every rank passes its status. smallest: of the rank that needs most. */
dcp_status load_limit_share(const dcp_load_options *options, dcp_status status, uint64_t mine,
                            uint64_t *smallest);

#endif
