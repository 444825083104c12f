/* SPDX-License-Identifier: BSD-3-Clause */
/* The elements of a source's box, row-major in host memory and of the item's dtype: where they lie
 * so already, or brought there block by block, from strides, another dtype, a device, or where they
 * are being staged. */
#ifndef STORAGE_SHARD_SHARD_ELEMENTS_H
#define STORAGE_SHARD_SHARD_ELEMENTS_H

#include "device/device_stream.h"
#include "state/box_blocks.h"
#include "storage/shard/shard_writer.h"

/* A source whose chunk is in memory. */
struct shard_opened {
    struct shard_source source;
    struct shard_resolved resolved;
};

/* Gets the box's elements if they are not in memory yet. */
dcp_status shard_source_open(struct shard_opened *opened, const struct shard_source *source,
                             struct box box);
void shard_source_close(struct shard_opened *opened);

struct shard_elements {
    const struct shard_source *source;
    struct box box;
    const unsigned char *first;
    struct box_blocks blocks;
    struct box_storage block;
    size_t size;       /* bytes of the current block */
    uint64_t position; /* of these in all of the box's */
    struct device_lanes *lanes;
    struct device_lane *lane; /* through which they come; NULL: block by block */
    struct device_stream stream;
};

/* *data: the box's bytes, if they lie row-major in host memory, or will when this returns, and
 * until the source is closed; else NULL. The source is open, and the box has elements, here as
 * below. */
dcp_status shard_elements_dense(const struct shard_source *source, struct box box,
                                const void **data);

/* Blocks of at most `most` bytes. lanes: for elements on devices, so that copies go on while blocks
 * are written; NULL: none. */
dcp_status shard_elements_start(struct shard_elements *elements, const struct shard_source *source,
                                struct box box, size_t most, struct device_lanes *lanes);
/* False at the end. */
bool shard_elements_next(struct shard_elements *elements);
/* Copies the current block to space, which has elements->size bytes. Once for each block. */
dcp_status shard_elements_gather(struct shard_elements *elements, unsigned char *space);
/* Also after a failure, of shard_elements_start() too. */
void shard_elements_end(struct shard_elements *elements);

#endif
