/* SPDX-License-Identifier: BSD-3-Clause */
/* Keeping a save within a limit of memory. */
#ifndef CHECKPOINT_SAVE_SAVE_LIMIT_H
#define CHECKPOINT_SAVE_SAVE_LIMIT_H

#include "checkpoint/save/save_needs.h"

/* Collective, when all ranks have their orders and before any of them writes: sees to it that what
 * is to come keeps within the limit. All ranks return the same. */
dcp_status save_limit_keep(dcp_saving *saving, dcp_status status);
/* Collective, when all ranks share a lack of memory and nothing has been written: if it comes from
 * the limit, they find out together what would do. state: NULL: this rank has none. Returns the
 * failure, with a new story or the one that it had. */
dcp_status save_limit_explain(dcp_saving *saving, dcp_state *state);
/* Collective. Takes the steps of a dry run up to writing; then says what the save needs, here and
 * in all. */
dcp_status save_limit_measure(dcp_saving *saving, dcp_state *state, dcp_status status,
                              struct save_needs *mine, struct save_needs *all);

#endif
