/* SPDX-License-Identifier: BSD-3-Clause */
/* The elements of a source's box, row-major in host memory: where they lie so already, or brought
 * there block by block, from strides or from a device. */
#ifndef STORAGE_SHARD_ELEMENTS_H
#define STORAGE_SHARD_ELEMENTS_H

#include "storage/box_blocks.h"
#include "storage/shard_writer.h"

struct shard_elements {
    const struct shard_source *source;
    struct box box;
    const unsigned char *first;
    struct box_blocks blocks;
    struct box_storage block;
    size_t size; /* bytes of the block at hand */
};

/* The box's bytes, if they lie row-major in host memory; else NULL. The box has elements. */
const void *shard_elements_dense(const struct shard_source *source, struct box box);

/* Blocks of at most `most` bytes. The box has elements. */
void shard_elements_start(struct shard_elements *elements, const struct shard_source *source,
                          struct box box, size_t most);
/* False at the end. */
bool shard_elements_next(struct shard_elements *elements);
/* Brings the block at hand to space, of elements->size bytes. */
dcp_status shard_elements_gather(const struct shard_elements *elements, unsigned char *space);

#endif
