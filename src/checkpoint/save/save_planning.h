/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes the orders of each rank from what all ranks hold, in the cheapest of three ways:
 *
 *   reused    nothing has changed since the save before, on any rank: its orders hold
 *   alone     the tensors say how all ranks hold them: every rank finds its orders by itself
 *   gathered the coordinator gathers the plans, and sends out the orders
 *
 * All ranks share records from which they choose the same way; options that must be the same are
 * compared there as well. */
#ifndef CHECKPOINT_SAVE_SAVE_PLANNING_H
#define CHECKPOINT_SAVE_SAVE_PLANNING_H

#include "base/buffer.h"
#include "dcp/save.h"
#include "plan/save/save_plan.h"

struct save_planning {
    dcp_save_plan_cache *cache; /* NULL: none, or none for such saves */
    uint64_t id;                /* of the planning that this rank could reuse; 0: none */
    bool reuse;                 /* all ranks can */
    bool lengths_travel; /* lengths of objects of other ranks than the coordinator have changed */
    struct buffer own;   /* this rank's encoded orders, for the cache */
    struct joint_plan joint; /* of a merge */
    struct merge *merge;     /* at the coordinator, until the metadata is made of it */
    bool describes_beside;   /* that happens beside writing; or would, in a dry run */
    bool lends;              /* metadata and extras belong to the cache, or will */
    bool reused;
    bool extra_files; /* some rank has some */
};

/* On every rank; status: its status so far. Compares options that must be the same. */
dcp_status save_planning_begin(dcp_saving *saving, dcp_status status);
/* Fills in the session, the orders, and at the coordinator the metadata. */
dcp_status save_planning_run(dcp_saving *saving);
/* The two ways to plan anew: each rank by itself (lengths_differ: but for the lengths of objects,
 * on which ranks do not agree), and by the coordinator. */
dcp_status save_planning_alone(dcp_saving *saving, bool lengths_differ);
dcp_status save_planning_gathered(dcp_saving *saving);
/* Makes the metadata, if that was left for later: for when other ranks write already. */
dcp_status save_planning_describe(dcp_saving *saving);
/* Collective: no plan, but a session without a place. */
dcp_status save_planning_stay(dcp_saving *saving);
/* After a failure that may have left metadata half changed, or lengths of objects different on
 * ranks: keeps nothing. Returns the status, which may be DCP_OK. */
dcp_status save_planning_forget(struct save_planning *planning, dcp_status status);
/* After the save has ended, with or without success: moves what the next one can reuse to the
 * cache. */
void save_planning_end(dcp_saving *saving);

#endif
