/* SPDX-License-Identifier: BSD-3-Clause */
/* From what each rank holds to what each rank writes where, in the cheapest of three ways:
 *
 *   reused    nothing has changed since the save before, on any rank: its orders hold
 *   alone     the tensors say how all ranks hold them: every rank finds its orders by itself
 *   gathered  the coordinator is told, and deals out the orders
 *
 * Which way it is, all ranks see in the same records that they share; what they must be told alike
 * is compared there as well. */
#ifndef CHECKPOINT_SAVE_SAVE_PLANNING_H
#define CHECKPOINT_SAVE_SAVE_PLANNING_H

#include "base/buffer.h"
#include "dcp/save.h"

struct save_planning {
    dcp_save_plan_cache *cache; /* NULL: none, or none for such saves */
    uint64_t id;                /* of the planning that this rank could reuse; 0: none */
    bool reuse;                 /* all ranks can */
    bool lengths_travel;        /* but objects of other ranks than the coordinator have changed */
    struct buffer own;          /* this rank's orders, as they travel */
    bool lends;                 /* metadata and extras are the cache's, or will be */
    bool reused;
};

/* Every rank; status: how it came so far. Compares what all must be given alike. */
dcp_status save_planning_begin(dcp_saving *saving, dcp_status status);
/* Fills in the session, the orders, and at the coordinator the metadata. */
dcp_status save_planning_run(dcp_saving *saving);
/* The two ways to plan anew: each rank by itself (lengths_differ: but for the lengths of objects,
 * on which ranks do not agree), and by the coordinator. */
dcp_status save_planning_alone(dcp_saving *saving, bool lengths_differ);
dcp_status save_planning_gathered(dcp_saving *saving);
/* Collective: no plan, but a session of no place. */
dcp_status save_planning_stay(dcp_saving *saving);
/* Of a failure that may have left metadata half changed, or what ranks know of each other's objects
 * different: nothing is kept. Returns the status, which may be DCP_OK. */
dcp_status save_planning_forget(struct save_planning *planning, dcp_status status);
/* When the save has ended, however: what the next one can use goes to the cache. */
void save_planning_end(dcp_saving *saving);

#endif
