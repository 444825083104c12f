/* SPDX-License-Identifier: BSD-3-Clause */
/* What one rank keeps of the last planning in a chain of loads: the metadata, what the rank wanted,
 * and the resulting plans. Nothing in it points into a state.
 *
 * Each load has a number, the same on all ranks. Ranks with equal `stored` numbers have the same
 * metadata; ranks with equal `planned` numbers have planned together. */
#ifndef CHECKPOINT_LOAD_LOAD_PLAN_CACHE_H
#define CHECKPOINT_LOAD_LOAD_PLAN_CACHE_H

#include "base/buffer.h"
#include "dcp/load.h"
#include "plan/load/load_plan.h"
#include "plan/share/load_share.h"
#include "state/flatten.h"

/* What the sharing of reads depends on besides the plan and the places of pieces. */
struct sharing_circumstances {
    dcp_reading reading;
    dcp_verification verification;
    uint32_t io;
    uint64_t group_bytes_per_second;
    bool remote; /* at the coordinator: the storage is on a network */
};

struct dcp_load_plan_cache {
    uint64_t stored; /* number of the load that the metadata is from; 0: nothing is kept */
    struct metadata metadata;
    struct arena texts; /* texts of the metadata, after renamings */
    struct buffer raw;  /* at the coordinator: the bytes it was decoded from */

    uint64_t planned; /* number of the load that the rest is from; 0: there is none */
    int rank;
    int size;
    int32_t coordinator;
    struct buffer naming;   /* the options that a plan depends on */
    struct buffer wanted;   /* see load_structure.h */
    struct buffer left_out; /* a byte for each entry of the flat state */
    struct load_plan plan;
    struct load_differences differences; /* of all ranks */
    bool dealt;                          /* readers are assigned, too */
    struct sharing_circumstances sharing;
    struct load_share share_of_objects;
    struct load_share share;
    struct load_plan rest;
};

/* A new number for a load. */
dcp_status load_plan_cache_number(uint64_t *number);
/* Whether changes relative to the cache's metadata may be sent in such a load. */
bool load_plan_cache_serves(const dcp_load_plan_cache *cache, const dcp_load_options *options);
/* Whether this rank's plan is valid for a state and options; fills in which entries the options
 * leave out. */
dcp_status load_plan_cache_look(const dcp_load_plan_cache *cache, const dcp_load_options *options,
                                struct flat_state *flat, bool *holds);
/* Records what a new plan was made for; number 0: only the metadata can be reused. After a failure
 * the cache has no plan. */
dcp_status load_plan_cache_note(dcp_load_plan_cache *cache, const dcp_load_options *options,
                                const struct flat_state *flat, uint64_t number);
bool sharing_circumstances_equal(const struct sharing_circumstances *a,
                                 const struct sharing_circumstances *b);
void load_plan_cache_forget_plan(dcp_load_plan_cache *cache);
void load_plan_cache_forget(dcp_load_plan_cache *cache);

#endif
