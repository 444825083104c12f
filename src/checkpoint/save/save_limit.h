/* SPDX-License-Identifier: BSD-3-Clause */
/* Keeps a save within a memory limit. */
#ifndef CHECKPOINT_SAVE_SAVE_LIMIT_H
#define CHECKPOINT_SAVE_SAVE_LIMIT_H

#include "checkpoint/save/save_needs.h"

/* Collective, after all ranks have their orders and before any of them writes: makes the rest of
 * the save keep within the limit. All ranks return the same. */
dcp_status save_limit_keep(dcp_saving *saving, dcp_status status);
/* Collective, after all ranks have failed for lack of memory, with nothing written: if the limit is
 * the reason, they find the smallest sufficient limit together. state: NULL if this rank has none.
 * Returns the failure, with a new message or its own. */
dcp_status save_limit_explain(dcp_saving *saving, dcp_state *state);
/* Collective. Runs the steps of a dry run up to writing, and computes the needs of the save, here
 * and on all ranks. */
dcp_status save_limit_measure(dcp_saving *saving, dcp_state *state, dcp_status status,
                              struct save_needs *mine, struct save_needs *all);

#endif
