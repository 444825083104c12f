/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans what each rank reads, from what it wants and what is stored:
 *
 *   reused  what is stored has the structure that it had for the load before, and every rank wants
 *           the same of it: its plan holds, wherever the pieces now lie
 *   anew    each rank makes its plan, and what differs is made known to all
 *
 * All ranks share records from which they choose the same. */
#ifndef CHECKPOINT_LOAD_LOAD_PLANNING_H
#define CHECKPOINT_LOAD_LOAD_PLANNING_H

#include "checkpoint/load/load_stored.h"
#include "dcp/load_planner.h"
#include "plan/load/load_plan.h"
#include "plan/share/load_share.h"

struct load_planning {
    struct load_names names;
    struct load_stored stored;
    struct flat_state flat;
    struct load_plan plan;
    struct load_differences mine;
    struct load_differences all;
    struct load_share share; /* tensors that ranks read for each other */
    struct load_plan rest;   /* the rest of the plan's tensors */
    struct load_share share_of_objects;
    bool dealt; /* all ranks have agreed on them */
    bool reused;
    bool complete;   /* metadata can be kept for the next load */
    bool plan_holds; /* the plan can be kept, too */
    struct sharing_circumstances sharing;
};

/* Names are set from the options later. */
void load_planning_init(struct load_planning *planning, const dcp_load_options *options);
/* Everything up to `all`, and also `rest` if that is reused. Collective; every rank passes its
 * status. decoded: as in load_gather_differences(). */
dcp_status load_planning_run(dcp_loading *loading, dcp_state *state, dcp_status status,
                             dcp_status *decoded);
/* Moves what the next load can reuse to the cache. */
void load_planning_free(struct load_planning *planning);

#endif
