/* SPDX-License-Identifier: BSD-3-Clause */
/* Bringing what all ranks hold to the coordinator. */
#ifndef CHECKPOINT_SAVE_SAVE_GATHER_H
#define CHECKPOINT_SAVE_SAVE_GATHER_H

#include "dcp/save.h"
#include "plan/save/joint_plan.h"

/* What has come to a rank: a joint plan, and what it points into. */
struct save_gathering {
    struct joint_plan joint;
    struct joint_plan *parts;
    size_t part_count;
};

/* At the coordinator the joint plan becomes that of all ranks. Along a tree, in which each rank
 * unites what it has with what came to the one beside it, if the group's ranks can send to each
 * other; else all at once. Borrows from the plan. Free in either case. */
dcp_status save_gather_plans(const dcp_save_options *options, const struct save_plan *plan,
                             struct save_gathering *gathering);
void save_gathering_free(struct save_gathering *gathering);

#endif
