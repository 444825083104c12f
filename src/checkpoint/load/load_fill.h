/* SPDX-License-Identifier: BSD-3-Clause */
/* This rank's side of a load: executes a load plan. */
#ifndef CHECKPOINT_LOAD_LOAD_FILL_H
#define CHECKPOINT_LOAD_LOAD_FILL_H

#include "plan/load/load_plan.h"
#include "plan/share/load_share.h"
#include "storage/shard/shard_reader.h"

/* Objects that were read, to be put into the tree later. */
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
/* Adds an object, to be read into its pool. */
dcp_status loaded_objects_add(struct loaded_objects *objects, dcp_state *target,
                              struct loaded_object **added);
/* Reads the plan's objects except those that `share` delivers, without changing the tree. */
dcp_status load_read_objects(const struct flat_state *flat, const struct metadata *metadata,
                             const struct load_plan *plan, const struct load_share *share,
                             uint32_t rank, struct shard_reader *reader,
                             dcp_verification verification, struct loaded_objects *objects);
/* Gives memory to the wanted chunks that have none, without reading. */
dcp_status load_allocate(const struct flat_state *flat, const struct load_plan *plan);
/* Lists the tensor regions that the plan reads and, if asked, the pieces of its objects. list:
 * memory_release(). */
dcp_status load_list_requests(const struct flat_state *flat, const struct metadata *metadata,
                              const struct load_plan *plan, bool objects,
                              struct shard_request **list, size_t *count);
/* Reads the plan's regions into the chunks. sums: by item, where the checksum of a part of a record
 * goes (shard_request::sum), or NULL; NULL: there are none. thread_count 0: chosen by size. moved:
 * bytes that were put into chunks. */
dcp_status load_read_tensors(const struct flat_state *flat, const struct metadata *metadata,
                             const struct load_plan *plan, struct shard_part_sum *const *sums,
                             struct shard_reader *reader, dcp_verification verification,
                             int32_t thread_count, uint64_t *moved);
/* The number of threads that read so many bytes. given: the option; 0: chosen by size. */
size_t load_thread_count(int32_t given, uint64_t bytes);
/* Puts the objects into the tree. */
dcp_status load_place_objects(struct loaded_objects *objects);
void loaded_objects_free(struct loaded_objects *objects);

#endif
