/* SPDX-License-Identifier: BSD-3-Clause */
/* The needs of the rest of a save, computed when every rank has its orders and nothing has been
 * written. */
#ifndef CHECKPOINT_SAVE_SAVE_NEEDS_H
#define CHECKPOINT_SAVE_SAVE_NEEDS_H

#include "checkpoint/save/saving.h"
#include "storage/shard/shard_needs.h"

struct save_needs {
    struct shard_needs writing;
    uint64_t bytes; /* on disk, with the metadata at the coordinator */
    uint64_t files;
    uint64_t held;     /* memory taken now and until the end, without the pool */
    uint64_t peak;     /* peak of memory so far and, without staging, of the commit */
    uint64_t commit;   /* memory that the commit takes beyond `held` */
    uint64_t smallest; /* the smallest memory with which the save succeeds */

    uint64_t beginning; /* memory of beginning the session beside what led to the peak */
    uint64_t preparing; /* memory that is taken for the commit while files are written */

    bool staged;                  /* orders are still to be staged */
    struct staging_needs staging; /* for that */
    uint64_t lists;               /* of staged orders, until the end */
    uint64_t starting;            /* for a moment while staging begins */
};

/* Call when the rank has its orders. Makes the metadata and the footers, to measure their memory,
 * and drops them. */
dcp_status save_needs_find(const dcp_saving *saving, struct save_needs *needs);
/* The most memory at a time if files are written, and orders staged, in the given way. */
uint64_t save_needs_memory(const struct save_needs *needs, const struct shard_write_options *how,
                           const struct save_staging *staging);
/* Changes both to keep within a limit, which must be large enough. Staging comes first, as the
 * caller waits for it: it gets all that it needs if enough is left to write at all, and as much as
 * possible otherwise. */
void save_needs_fit(const struct save_needs *needs, uint64_t limit, struct shard_write_options *how,
                    struct save_staging *staging);

/* Collective: sums of bytes and files, and the largest of the smallest memories. */
dcp_status save_needs_share(dcp_group *group, const struct dcp_collective *call, int coordinator,
                            dcp_status status, const struct save_needs *mine,
                            struct save_needs *all);

#endif
