/* SPDX-License-Identifier: BSD-3-Clause */
/* Walking over a box in bounded blocks, in row-major order: each block is one index in the
 * dimensions before `split`, up to `step` indices of `split`, and everything after it. */
#ifndef STATE_BOX_BLOCKS_H
#define STATE_BOX_BLOCKS_H

#include "state/box.h"

struct box_blocks {
    int32_t ndim;
    const int64_t *sizes;
    int32_t split; /* -1: the whole box is one block */
    int64_t step;
    int64_t next[DCP_MAX_DIMS];
    bool done;
};

void box_blocks_start(struct box_blocks *blocks, int32_t ndim, const int64_t *sizes, int32_t split,
                      int64_t step);
/* As above, with the largest blocks of at most `most` elements: each is one run of the row-major
 * order. */
void box_blocks_start_bounded(struct box_blocks *blocks, int32_t ndim, const int64_t *sizes,
                              int64_t most);
/* False at the end. block: offsets inside the box, and sizes. */
bool box_blocks_next(struct box_blocks *blocks, struct box_storage *block);

#endif
