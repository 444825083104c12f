/* SPDX-License-Identifier: BSD-3-Clause */
/* What one rank keeps of the last planning of a chain of saves. Nothing in it points anywhere: the
 * orders are kept as they travel, and are read again against what the rank holds now. */
#ifndef CHECKPOINT_SAVE_SAVE_PLAN_CACHE_H
#define CHECKPOINT_SAVE_SAVE_PLAN_CACHE_H

#include "base/buffer.h"
#include "checkpoint/save/plan_extras.h"
#include "dcp/save.h"
#include "state/metadata.h"
#include "state/write_plan.h"

struct dcp_save_plan_cache {
    uint64_t id; /* of the planning, the same on all its ranks; 0: nothing is kept */
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
    struct buffer plan;   /* what the rank held, but for the lengths of its objects */
    struct buffer orders; /* what it was to write */
    uint64_t *lengths;    /* of the objects that it writes, in the order of the orders; as the
                             coordinator knows them */
    /* At the coordinator: */
    struct metadata metadata;
    struct arena names;  /* of files, since the generation has changed */
    uint32_t generation; /* of the names */
    uint64_t content;    /* bytes of data of all ranks' files */
};

/* Whether the rank holds the same as then, for the same options, and its objects have room: then
 * *id is that of the planning, *orders is filled in, and *grown says whether the coordinator does
 * not know an object's length any more. Else *id is 0. DCP_ERR_NO_MEMORY is the only failure. */
dcp_status save_plan_cache_look(const dcp_save_plan_cache *cache, const dcp_save_options *options,
                                const struct plan_extras *extras, const struct save_plan *plan,
                                uint64_t *id, struct write_orders *orders, bool *grown);
/* Keeps the outcome of a planning, or after a failure nothing. orders_bytes: as they travelled. */
dcp_status save_plan_cache_keep(dcp_save_plan_cache *cache, uint64_t id,
                                const dcp_save_options *options, const struct save_plan *plan,
                                const struct write_orders *orders, const void *orders_bytes,
                                size_t orders_size);
/* The extras go to a save that reuses the plan; what it has already set itself stays. */
void save_plan_cache_lend_extras(dcp_save_plan_cache *cache, struct plan_extras *extras);
/* Keeps what the objects' lengths have become. */
void save_plan_cache_note_lengths(dcp_save_plan_cache *cache, const struct save_plan *plan,
                                  const struct write_orders *orders);
/* Lets the metadata name files of a generation. */
dcp_status save_plan_cache_set_generation(dcp_save_plan_cache *cache, uint32_t generation);
void save_plan_cache_forget(dcp_save_plan_cache *cache);

#endif
