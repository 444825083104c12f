/* SPDX-License-Identifier: BSD-3-Clause */
/* A load in which ranks read for each other: what several of them want is read by one, and goes
 * through the group to the others. */
#ifndef CHECKPOINT_LOAD_SHARING_H
#define CHECKPOINT_LOAD_SHARING_H

#include "base/file.h"
#include "base/progress.h"
#include "plan/load_plan.h"
#include "plan/load_share.h"
#include "storage/shard_reader.h"

/* Memory that a rank takes at most for bytes on their way: three lots that are read ahead, what it
 * receives at once, and a window of others' that it throws away where the group has no all_to_all.
 * Together less than the 32 MiB that dcp_load_options::reading promises. */
#define SHARING_LOT_BYTES     ((size_t)4 << 20)
#define SHARING_LOTS          3
#define SHARING_RECEIVE_BYTES ((size_t)8 << 20)

/* What sharing needs of a load; all borrowed. */
struct load_sharing {
    const struct file_ops *ops;
    const char *path; /* at the coordinator */
    const dcp_load_options *options;
    const struct metadata *metadata;
    const struct flat_state *flat;
    const struct load_plan *plan;
    struct shard_reader *reader;
    struct progress *progress;
};

/* Comes to an agreement on who reads what. Collective; the same result on all ranks, with the
 * failure of one as that of all. share: empty if each rank reads for itself. rest: what of the plan
 * this rank has to read by itself, if it is not empty. Free both in either case. */
dcp_status load_share_agree(const struct load_sharing *sharing, dcp_status mine,
                            struct load_share *share, struct load_plan *rest);

/* Reads, sends, receives and places what is shared. Collective, with the same result on all ranks.
 * moved: bytes that were put into chunks; received: those that came from other ranks. */
dcp_status load_exchange(const struct load_sharing *sharing, const struct load_share *share,
                         uint64_t *moved, uint64_t *received);

/* What this rank has to send, window after window, which a thread of its own reads ahead. */
struct load_lots;

dcp_status load_lots_open(const struct load_sharing *sharing, const struct load_share *share,
                          struct load_lots **lots);
/* The next window's bytes, size of them, which stay until the next call. After a failure *bytes is
 * some memory of that size all the same. */
dcp_status load_lots_next(struct load_lots *lots, size_t size, const unsigned char **bytes);
/* NULL is allowed. */
void load_lots_close(struct load_lots *lots);

#endif
