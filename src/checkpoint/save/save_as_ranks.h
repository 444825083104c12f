/* SPDX-License-Identifier: BSD-3-Clause */
/* One process saves what several ranks would. Nothing is kept for each rank but its orders, as a
 * message, so that a checkpoint of many tensors by many ranks takes little more than its metadata.
 * convert/ calls it. */
#ifndef CHECKPOINT_SAVE_SAVE_AS_RANKS_H
#define CHECKPOINT_SAVE_SAVE_AS_RANKS_H

#include "dcp/save.h"

/* Of the state, whose tensors are whole, each rank has consecutive rows of the first dimension, as
 * torch.chunk divides it; the lowest one saves objects. The files of up to thread_count ranks are
 * written at a time, one for each rank. options: without a group, hooks, a kept plan and a limit.
 */
dcp_status save_as_ranks(dcp_state *state, const char *path, const dcp_save_options *options,
                         uint32_t rank_count, uint32_t thread_count);

#endif
