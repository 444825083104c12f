/* SPDX-License-Identifier: BSD-3-Clause */
/* A load in which ranks read for each other: one rank reads what several want, and sends it to the
 * others through the group. */
#ifndef CHECKPOINT_SHARE_LOAD_SHARING_H
#define CHECKPOINT_SHARE_LOAD_SHARING_H

#include "base/progress.h"
#include "checkpoint/load/load_fill.h"
#include "dcp/load.h"
#include "plan/load/load_plan.h"
#include "plan/share/load_share.h"
#include "storage/shard/shard_reader.h"

/* The parts of a load that sharing needs; borrowed. */
struct load_sharing {
    const dcp_load_options *options;
    const struct metadata *metadata;
    const struct flat_state *flat;
    const struct load_plan *plan;
    struct shard_reader *reader;
    struct progress *progress;
};

/* Agrees on an assignment of readers. Collective, with the same result on all ranks: a failure of
 * one is that of all. objects, tensors: empty if each rank reads for itself; objects may be NULL,
 * on all ranks, to share only tensors. rest: the tensors' items that this rank reads by itself, if
 * any are shared. Free all three in either case. */
dcp_status load_share_agree(const struct load_sharing *sharing, dcp_status mine,
                            struct load_share *objects, struct load_share *tensors,
                            struct load_plan *rest);

struct load_records; /* load_records.h */

/* Reads, sends, receives and places the tensors that are shared. Collective, with the same result
 * on all ranks. records: what is checked together. moved: bytes that were put into chunks;
 * received: those that came from other ranks; both grow. */
dcp_status load_share_tensors(const struct load_sharing *sharing, const struct load_share *share,
                              const struct load_records *records, uint64_t *moved,
                              uint64_t *received);
/* The most memory that this takes on this rank at a time, besides that for reading pieces. */
uint64_t load_share_memory(const struct load_sharing *sharing, const struct load_share *share);
/* As load_share_tensors(), for objects, without changing the tree. Every rank passes its status. */
dcp_status load_share_objects(const struct load_sharing *sharing, const struct load_share *share,
                              dcp_status mine, struct loaded_objects *objects, uint64_t *received);

#endif
