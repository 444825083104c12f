/* SPDX-License-Identifier: BSD-3-Clause */
/* What a conversion copies, in blocks of runs, and blocks of small runs that are neighbours in
 * groups: one thread copies a group at once. */
#ifndef CONVERT_CONVERT_BLOCKS_H
#define CONVERT_CONVERT_BLOCKS_H

#include "convert/convert_copy.h"

/* Smaller tensors are read with their neighbours, so many at once at most. */
#define CONVERT_GROUPED_SIZE ((uint64_t)1 << 20)
#define CONVERT_GROUP_MOST   ((size_t)256)

struct convert_blocks {
    struct convert_run **runs; /* in the order in which they are copied */
    size_t run_count;
    size_t *first;  /* the first block of each run, and behind the last */
    size_t count;   /* of blocks */
    size_t *groups; /* the first block of each group, and behind the last */
    size_t group_count;
};

/* A part of a run. */
struct convert_block {
    struct convert_run *run;
    uint64_t begin; /* in it */
    size_t size;
};

/* The last of ascending numbers that is no larger than one; the first one, if none is. */
size_t convert_find_last(const size_t *numbers, size_t count, size_t number);

/* To be freed in any case. */
dcp_status convert_blocks_make(const struct convert_source *source, struct convert_run *runs,
                               size_t count, struct convert_blocks *blocks);
void convert_blocks_free(struct convert_blocks *blocks);
struct convert_block convert_block_at(const struct convert_blocks *blocks, size_t block);
/* The group that a block is in. */
size_t convert_blocks_group(const struct convert_blocks *blocks, size_t block);

#endif
