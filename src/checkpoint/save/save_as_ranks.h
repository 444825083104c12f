/* SPDX-License-Identifier: BSD-3-Clause */
/* One process saves what several ranks would. Nothing is kept for each rank but its orders, as a
 * message, so that a checkpoint of many tensors by many ranks takes little more than its metadata.
 * convert/ calls it. */
#ifndef CHECKPOINT_SAVE_SAVE_AS_RANKS_H
#define CHECKPOINT_SAVE_SAVE_AS_RANKS_H

#include "dcp/save.h"

/* What makes it a save that can be continued: what earlier attempts in the same directory, with the
 * same state and options, have written, and who is told of the rest. */
struct save_kept {
    bool *ranks; /* whose file is there, durable; grows */
    /* A rank's file is durable. By any thread, several at a time. bytes: of its tensors. */
    dcp_status (*written)(void *context, uint32_t rank, uint64_t bytes);
    void *context;
};

/* Of the state, whose tensors are whole, each rank has consecutive rows of the first dimension, as
 * torch.chunk divides it; the lowest one saves objects. The files of up to thread_count ranks are
 * written at a time, one for each rank. options: without a group, hooks, a kept plan and a limit.
 * kept: NULL for a save that leaves nothing when it fails; else no other save is in the directory,
 * and finished files stay. DCP_ERR_FORMAT: one of them is missing or damaged. */
dcp_status save_as_ranks(dcp_state *state, const char *path, const dcp_save_options *options,
                         uint32_t rank_count, uint32_t thread_count, const struct save_kept *kept);

#endif
