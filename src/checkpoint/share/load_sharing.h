/* SPDX-License-Identifier: BSD-3-Clause */
/* A load in which ranks read for each other: what several of them want is read by one, and goes
 * through the group to the others. */
#ifndef CHECKPOINT_SHARE_LOAD_SHARING_H
#define CHECKPOINT_SHARE_LOAD_SHARING_H

#include "base/progress.h"
#include "checkpoint/load/load_fill.h"
#include "dcp/load.h"
#include "plan/load/load_plan.h"
#include "plan/share/load_share.h"
#include "storage/shard/shard_reader.h"

/* What sharing needs of a load; all borrowed. */
struct load_sharing {
    const dcp_load_options *options;
    const struct metadata *metadata;
    const struct flat_state *flat;
    const struct load_plan *plan;
    struct shard_reader *reader;
    struct progress *progress;
};

/* Comes to an agreement on who reads what. Collective; the same result on all ranks, with the
 * failure of one as that of all. objects, tensors: empty if each rank reads for itself; objects may
 * be NULL, on all ranks, if they are not to be shared. rest: what of the plan's tensors this rank
 * has to read by itself, if any are shared. Free all of them in either case. */
dcp_status load_share_agree(const struct load_sharing *sharing, dcp_status mine,
                            struct load_share *objects, struct load_share *tensors,
                            struct load_plan *rest);

/* Reads, sends, receives and places the tensors that are shared. Collective, with the same result
 * on all ranks. moved: bytes that were put into chunks; received: those that came from other ranks;
 * both grow. */
dcp_status load_share_tensors(const struct load_sharing *sharing, const struct load_share *share,
                              uint64_t *moved, uint64_t *received);
/* Memory that this takes on this rank at a time at most, beside what reading pieces does. */
uint64_t load_share_memory(const struct load_sharing *sharing, const struct load_share *share);
/* As load_share_tensors(), of objects, without changing the tree. Every rank brings its status. */
dcp_status load_share_objects(const struct load_sharing *sharing, const struct load_share *share,
                              dcp_status mine, struct loaded_objects *objects, uint64_t *received);

#endif
