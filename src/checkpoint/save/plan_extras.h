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
    struct buffer offered; /* what travelled with this rank's plan, where the outcome hangs on it */
    struct buffer dealt;   /* what came back with its orders */
    /* At the coordinator: */
    dcp_state *planner_root;       /* the tree of: */
    const dcp_state *planner_data; /* for the metadata; NULL: the paths of names */
    dcp_write_result *results;     /* that all ranks are to give; indexes are the metadata's */
    size_t result_count;
    struct planned_places
        places; /* where planning had put things, if they have come to lie elsewhere */
};

/* Whether the same hooks have been offered the same. */
bool plan_extras_match(const struct plan_extras *a, const struct plan_extras *b);
void plan_extras_free(struct plan_extras *extras);

#endif
