/* SPDX-License-Identifier: BSD-3-Clause */
/* From what each rank wants and what is stored to what each rank reads:
 *
 *   reused  what is stored has the structure that it had for the load before, and every rank wants
 *           the same of it: its plan holds, wherever the pieces now lie
 *   anew    each rank makes its plan, and what differs is made known to all
 *
 * Which of them it is, all ranks see in the same records that they share. */
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
    struct load_share share; /* what ranks read for each other of tensors */
    struct load_plan rest;   /* what of these then is left of the plan */
    struct load_share share_of_objects;
    bool dealt; /* all ranks have agreed on them */
    bool reused;
    bool complete;   /* and the metadata can be kept for the next load */
    bool plan_holds; /* as can the plan */
    struct sharing_circumstances sharing;
};

/* The names are still to be taken from the options. */
void load_planning_init(struct load_planning *planning, const dcp_load_options *options);
/* Everything up to `all`, and the rest if that is reused, too. Collective; every rank brings its
 * status. decoded: as of load_gather_differences(). */
dcp_status load_planning_run(dcp_loading *loading, dcp_state *state, dcp_status status,
                             dcp_status *decoded);
/* What the next load can use goes to the cache. */
void load_planning_free(struct load_planning *planning);

#endif
