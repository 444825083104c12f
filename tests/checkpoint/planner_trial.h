/* SPDX-License-Identifier: BSD-3-Clause */
/* What saves with planners of the caller's own save in tests: one matrix and two objects, on a few
 * ranks. */
#ifndef CHECKPOINT_PLANNER_TRIAL_H
#define CHECKPOINT_PLANNER_TRIAL_H

#include <stdatomic.h>

#include "checkpoint/ranks.h"

enum { ROWS = 12, COLUMNS = 5 };

/* What a rank does, and with what. */
struct trial {
    dcp_save_planner planner;
    dcp_save_options options;
    void (*change)(struct trial *trial, int rank);
    atomic_int calls;
    bool whole; /* every rank holds all of "w" */
    bool ordered;
};

float value_at(int64_t row, int64_t column);
/* "model.w" in rows by rank, or whole on each; "train.step" and "names" on each. */
void build(dcp_state *root, float data[ROWS][COLUMNS], const struct rank *self, bool whole);
/* Saves; its context is a trial. */
dcp_status body(struct rank *self);

#endif
