/* SPDX-License-Identifier: BSD-3-Clause */
/* This rank's side of a load: carrying out a load plan. */
#ifndef CHECKPOINT_LOAD_LOAD_FILL_H
#define CHECKPOINT_LOAD_LOAD_FILL_H

#include "plan/load/load_plan.h"
#include "plan/share/load_share.h"
#include "storage/shard/shard_reader.h"

/* Objects that were read and wait to be put into the tree. */
struct loaded_objects {
    struct loaded_object {
        dcp_state *target;
        struct state_pool *pool;
        dcp_state *object;
    } * items;
    size_t count;
};

/* Makes room for the plan's objects. */
dcp_status loaded_objects_init(struct loaded_objects *objects, const struct metadata *metadata,
                               const struct load_plan *plan);
/* One more, which is to be read into its pool. */
dcp_status loaded_objects_add(struct loaded_objects *objects, dcp_state *target,
                              struct loaded_object **added);
/* Reads the plan's objects, but for those that share brings, without changing the tree. */
dcp_status load_read_objects(const struct flat_state *flat, const struct metadata *metadata,
                             const struct load_plan *plan, const struct load_share *share,
                             uint32_t rank, struct shard_reader *reader,
                             dcp_verification verification, struct loaded_objects *objects);
/* Gives memory to the wanted chunks that have none, without reading. */
dcp_status load_allocate(const struct flat_state *flat, const struct load_plan *plan);
/* What the plan reads of tensors; of objects, on request, just the pieces. list:
 * memory_release(). */
dcp_status load_list_requests(const struct flat_state *flat, const struct metadata *metadata,
                              const struct load_plan *plan, bool objects,
                              struct shard_request **list, size_t *count);
/* Reads the plan's regions into the chunks. thread_count 0: as many threads as are worth it. moved:
 * bytes that were put into chunks. */
dcp_status load_read_tensors(const struct flat_state *flat, const struct metadata *metadata,
                             const struct load_plan *plan, struct shard_reader *reader,
                             dcp_verification verification, int32_t thread_count, uint64_t *moved);
/* How many threads read so many bytes; given: 0 for as many as are worth it. */
size_t load_thread_count(int32_t given, uint64_t bytes);
/* Puts the objects into the tree. */
dcp_status load_place_objects(struct loaded_objects *objects);
void loaded_objects_free(struct loaded_objects *objects);

#endif
