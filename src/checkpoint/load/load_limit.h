/* SPDX-License-Identifier: BSD-3-Clause */
/* Keeping a load within a limit of memory: what reading will take is found out when every rank has
 * its plan and nothing has been read into a destination. */
#ifndef CHECKPOINT_LOAD_LOAD_LIMIT_H
#define CHECKPOINT_LOAD_LOAD_LIMIT_H

#include "checkpoint/operation/operation.h"
#include "checkpoint/share/load_sharing.h"
#include "dcp/load.h"
#include "storage/shard/shard_read_needs.h"

/* What one rank's load is known to take. */
struct load_limit {
    struct shard_read_needs needs;
    struct shard_read_how how; /* to read within the limit */
    uint64_t smallest;         /* the smallest limit that would do for this rank */
    bool too_small;            /* the limit is below it */
};

/* Before objects are read, which is done in the same way as all that comes before: plainly. Opens
 * the files that the plan is about. */
dcp_status load_limit_look(struct load_limit *limit, const struct load_sharing *sharing);
/* When objects have been read: finds the smallest limit. */
void load_limit_find(struct load_limit *limit, const struct operation *operation,
                     const struct load_sharing *sharing);
/* DCP_ERR_NO_MEMORY if the limit is below it. */
dcp_status load_limit_check(struct load_limit *limit, const dcp_load_options *options);
/* Chooses how to read within the limit, which is large enough, and has the reader do so. */
void load_limit_fit(struct load_limit *limit, const struct operation *operation,
                    const struct load_sharing *sharing);
/* The same when ranks have agreed to read for each other, which takes some, too, and more the more
 * ranks there are; DCP_ERR_NO_MEMORY if that is too much: then each had better read for itself. */
dcp_status load_limit_fit_sharing(struct load_limit *limit, const struct operation *operation,
                                  const struct load_sharing *sharing,
                                  const struct load_share *share);
/* Collective; every rank brings its status. smallest: that of the rank that needs most. */
dcp_status load_limit_share(const dcp_load_options *options, dcp_status status, uint64_t mine,
                            uint64_t *smallest);

#endif
