/* SPDX-License-Identifier: BSD-3-Clause */
/* What one rank keeps of the last planning of a chain of loads: what was stored, what it wanted of
 * it, and what came of that. Nothing in it points into a state.
 *
 * Loads are told apart by numbers, the same on all their ranks: ranks whose caches have the same
 * number of `stored` know the same metadata, those with the same number of `planned` have planned
 * together. */
#ifndef CHECKPOINT_LOAD_LOAD_PLAN_CACHE_H
#define CHECKPOINT_LOAD_LOAD_PLAN_CACHE_H

#include "base/buffer.h"
#include "dcp/load.h"
#include "plan/load/load_plan.h"
#include "plan/share/load_share.h"
#include "state/flatten.h"

/* What the sharing of reads depends on, beside the plan and where pieces lie. */
struct sharing_circumstances {
    dcp_reading reading;
    dcp_verification verification;
    uint32_t io;
    uint64_t group_bytes_per_second;
    bool remote; /* at the coordinator: the storage is on a network */
};

struct dcp_load_plan_cache {
    uint64_t stored; /* the load that the metadata, as it is, is from; 0: nothing is kept */
    struct metadata metadata;
    struct arena texts; /* of the metadata, since something is called otherwise */
    struct buffer raw;  /* at the coordinator: what it was decoded from */

    uint64_t planned; /* the load that the rest is from; 0: there is none */
    int rank;
    int size;
    int32_t coordinator;
    struct buffer naming;   /* the options that a plan depends on */
    struct buffer wanted;   /* see load_structure.h */
    struct buffer left_out; /* a byte for each entry of the flat state */
    struct load_plan plan;
    struct load_differences differences; /* of all ranks */
    bool dealt;                          /* who reads what for whom is known, too */
    struct sharing_circumstances sharing;
    struct load_share share_of_objects;
    struct load_share share;
    struct load_plan rest;
};

/* A number for a load, other than all before. */
dcp_status load_plan_cache_number(uint64_t *number);
/* Whether the metadata may be the start of what such a load's ranks are told. */
bool load_plan_cache_serves(const dcp_load_plan_cache *cache, const dcp_load_options *options);
/* Whether this rank's plan holds for a state and options; fills in what the options leave out. */
dcp_status load_plan_cache_look(const dcp_load_plan_cache *cache, const dcp_load_options *options,
                                struct flat_state *flat, bool *holds);
/* Notes what a plan that was just made is about; number 0: it cannot be used again, but the
 * metadata can. After a failure there is none. */
dcp_status load_plan_cache_note(dcp_load_plan_cache *cache, const dcp_load_options *options,
                                const struct flat_state *flat, uint64_t number);
bool sharing_circumstances_equal(const struct sharing_circumstances *a,
                                 const struct sharing_circumstances *b);
void load_plan_cache_forget_plan(dcp_load_plan_cache *cache);
void load_plan_cache_forget(dcp_load_plan_cache *cache);

#endif
