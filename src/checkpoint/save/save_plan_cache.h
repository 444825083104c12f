/* SPDX-License-Identifier: BSD-3-Clause */
/* What one rank keeps of the last planning in a chain of saves. It has no pointers into a state:
 * orders are kept encoded, and decoded again against what the rank holds now. */
#ifndef CHECKPOINT_SAVE_SAVE_PLAN_CACHE_H
#define CHECKPOINT_SAVE_SAVE_PLAN_CACHE_H

#include "base/buffer.h"
#include "checkpoint/save/plan_extras.h"
#include "dcp/save.h"
#include "state/metadata.h"
#include "state/write_plan.h"

struct dcp_save_plan_cache {
    uint64_t id; /* id of the planning, the same on all its ranks; 0: nothing is kept */
    int rank;
    int file_rank; /* in names of files */
    int size;
    int32_t coordinator; /* and the options that a plan depends on */
    dcp_replicas replicas;
    dcp_file_layout files;
    int32_t thread_count;
    bool unflattened;
    bool allow_partial;
    bool zstd;
    struct plan_extras extras;
    struct buffer plan;   /* what the rank held, without lengths of objects */
    struct buffer orders; /* its orders */
    uint64_t *lengths; /* lengths of the objects that it writes, in the order of the orders, as the
                          coordinator has them */
    /* At the coordinator: */
    struct metadata metadata;
    struct arena names;  /* names of files, after the generation has changed */
    uint32_t generation; /* generation in the names */
    uint64_t content;    /* bytes of data of all ranks' files */
};

/* Whether the rank holds the same as then, with the same options, and its objects fit their space.
 * If so, *id is the planning's, *orders is filled in, and *grown says whether the coordinator's
 * length of an object is outdated. Otherwise *id is 0. The only failure is DCP_ERR_NO_MEMORY. */
dcp_status save_plan_cache_look(const dcp_save_plan_cache *cache, const dcp_save_options *options,
                                const struct plan_extras *extras, const struct save_plan *plan,
                                uint64_t *id, struct write_orders *orders, bool *grown);
/* Keeps the result of a planning; after a failure, nothing. orders_bytes: the encoded orders. */
dcp_status save_plan_cache_keep(dcp_save_plan_cache *cache, uint64_t id,
                                const dcp_save_options *options, const struct save_plan *plan,
                                const struct write_orders *orders, const void *orders_bytes,
                                size_t orders_size);
/* Lends the extras to a save that reuses the plan; keeps those that it has set itself. */
void save_plan_cache_lend_extras(dcp_save_plan_cache *cache, struct plan_extras *extras);
/* Keeps the new lengths of objects. */
void save_plan_cache_note_lengths(dcp_save_plan_cache *cache, const struct save_plan *plan,
                                  const struct write_orders *orders);
/* Makes the metadata name files of a generation. */
dcp_status save_plan_cache_set_generation(dcp_save_plan_cache *cache, uint32_t generation);
void save_plan_cache_forget(dcp_save_plan_cache *cache);

#endif
