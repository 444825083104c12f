/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/box_blocks.h"

void box_blocks_start(struct box_blocks *blocks, int32_t ndim, const int64_t *sizes, int32_t split,
                      int64_t step)
{
    *blocks = (struct box_blocks){.ndim = ndim, .sizes = sizes, .split = split, .step = step};
    for (int32_t i = 0; i < ndim; i++)
        blocks->done |= sizes[i] == 0;
}

void box_blocks_start_bounded(struct box_blocks *blocks, int32_t ndim, const int64_t *sizes,
                              int64_t most)
{
    int64_t inner = 1;
    int32_t split = ndim - 1;
    while (split >= 0 && sizes[split] <= most / inner) {
        inner *= sizes[split] > 0 ? sizes[split] : 1;
        split--;
    }
    box_blocks_start(blocks, ndim, sizes, split, most / inner > 0 ? most / inner : 1);
}

bool box_blocks_next(struct box_blocks *blocks, struct box_storage *block)
{
    if (blocks->done)
        return false;
    for (int32_t i = 0; i < blocks->ndim; i++) {
        block->offsets[i] = blocks->next[i];
        block->sizes[i] = i < blocks->split ? 1 : blocks->sizes[i];
    }
    if (blocks->split < 0) {
        blocks->done = true;
        return true;
    }
    int32_t i = blocks->split;
    int64_t left = blocks->sizes[i] - blocks->next[i];
    int64_t taken = left < blocks->step ? left : blocks->step;
    block->sizes[i] = taken;
    blocks->next[i] += taken;
    while (i >= 0 && blocks->next[i] == blocks->sizes[i]) {
        blocks->next[i] = 0;
        if (--i >= 0)
            blocks->next[i]++;
    }
    blocks->done = i < 0;
    return true;
}
