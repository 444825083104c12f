/* SPDX-License-Identifier: BSD-3-Clause */
/* What this rank reads next for others, where it is too small to be read ahead by itself: several
 * runs are under way at a time, around the page cache. */
#ifndef CHECKPOINT_SHARE_SHARE_AHEAD_H
#define CHECKPOINT_SHARE_SHARE_AHEAD_H

#include "checkpoint/share/load_sharing.h"
#include "storage/shard/read_batch.h"

/* All zero but for what it is about: nothing is under way. */
struct share_ahead {
    const struct load_sharing *sharing;
    const struct load_share *share;
    struct read_batch *batch; /* of the runs up to `until`; NULL: they are read at their turn */
    struct read_batch *next;  /* of those from there up to `after` */
    uint32_t until;
    uint32_t after;
};

/* Has ahead->batch that of a run, which is read now; runs are read in order. What comes after it
 * begins. */
void share_ahead_move(struct share_ahead *ahead, const struct share_run *run);
void share_ahead_end(struct share_ahead *ahead);

#endif
