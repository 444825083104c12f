/* SPDX-License-Identifier: BSD-3-Clause */
/* Gathers all ranks' plans at the coordinator. */
#ifndef CHECKPOINT_SAVE_SAVE_GATHER_H
#define CHECKPOINT_SAVE_SAVE_GATHER_H

#include "dcp/save.h"
#include "plan/save/joint_plan.h"

/* The plans received by a rank: a joint plan, and the memory that it points into. */
struct save_gathering {
    struct joint_plan joint;
    struct joint_plan *parts;
    size_t part_count;
};

/* At the coordinator, the result is the joint plan of all ranks. If ranks can send to each other,
 * along a tree, in which each rank unites the plans that it receives with its own; otherwise in one
 * exchange. Borrows from the plan. Free in either case. */
dcp_status save_gather_plans(const dcp_save_options *options, const struct save_plan *plan,
                             struct save_gathering *gathering);
void save_gathering_free(struct save_gathering *gathering);

#endif
