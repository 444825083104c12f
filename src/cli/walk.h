/* SPDX-License-Identifier: BSD-3-Clause */
/* A box of a tensor, block by block in row-major order, so that no more than a block is in memory.
 */
#ifndef CLI_WALK_H
#define CLI_WALK_H

#include "command.h"

struct walk {
    dcp_tensor box;      /* what is walked over: its offsets and sizes, and the tensor's shape */
    size_t element_size; /* of the dtype that is read, which is box.dtype */
    int32_t split;       /* the dimension of which a block has several rows */
    int64_t rows;        /* of a full block */
    int64_t parts;       /* blocks at one index of the outer dimensions */
    int64_t count;       /* blocks */
    size_t bytes;        /* of the largest */
    int64_t together;    /* blocks that one thread is to read, one after the other */
};

/* The whole of an entry. dtype: as it is read, of which a block takes about `most` bytes. */
void walk_whole(struct walk *walk, const dcp_entry *entry, dcp_dtype dtype, int64_t most);
/* Divides the box, which has been changed. */
void walk_divide(struct walk *walk, int64_t most);
/* Blocks of compressed chunks belong together, as a chunk is decompressed from its beginning by
 * each thread that reads of it. */
void walk_group(struct walk *walk, const dcp_checkpoint *checkpoint, size_t entry);
/* How many blocks from `index` on belong together. */
int64_t walk_run(const struct walk *walk, int64_t index);
/* Block `index` of the walk's; its memory is to be set. */
void walk_block(const struct walk *walk, int64_t index, dcp_tensor *block);
/* Elements of a block. */
int64_t walk_elements(const dcp_tensor *block);
/* Where element `index` of a block, counted row-major, is in the tensor. */
void walk_position(const dcp_tensor *block, int64_t index, int64_t *position);

#endif
