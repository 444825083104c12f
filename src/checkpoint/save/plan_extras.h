/* SPDX-License-Identifier: BSD-3-Clause */
/* What hooks add to a save's plan, beside the orders and the metadata: kept with it by a plan
 * cache. Without hooks it is empty. */
#ifndef CHECKPOINT_SAVE_PLAN_EXTRAS_H
#define CHECKPOINT_SAVE_PLAN_EXTRAS_H

#include "base/buffer.h"
#include "checkpoint/save/save_steps.h"
#include "dcp/storage_writer.h"
#include "plan/save/save_plan.h"

struct plan_extras {
    struct hooks_kind kind;
    struct buffer offered; /* data sent with this rank's plan, if the result depends on it */
    struct buffer dealt;   /* data received with its orders */
    /* At the coordinator: */
    dcp_state *planner_root;       /* the tree of: */
    const dcp_state *planner_data; /* for the metadata; NULL: the paths of names */
    dcp_write_result *results; /* results expected from all ranks; indexes refer to the metadata */
    size_t result_count;
    struct planned_places places; /* the planned places, if items were written elsewhere */
};

/* Whether the same hooks had the same input. */
bool plan_extras_match(const struct plan_extras *a, const struct plan_extras *b);
void plan_extras_free(struct plan_extras *extras);

#endif
