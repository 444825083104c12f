/* SPDX-License-Identifier: BSD-3-Clause */
/* Decompresses items, as a stream: all zstd frames of one, including skippable ones. If built
 * without zstd, all calls except freeing return DCP_ERR_UNSUPPORTED. */
#ifndef FORMAT_STREAMS_ITEM_DECOMPRESS_H
#define FORMAT_STREAMS_ITEM_DECOMPRESS_H

#include <stdbool.h>

#include "base/byte_source.h"

struct item_decompressor;

/* For one thread at a time. */
dcp_status item_decompressor_new(struct item_decompressor **made);
/* NULL is allowed. */
void item_decompressor_free(struct item_decompressor *decompressor);
/* The next input is the beginning of an item. */
void item_decompressor_restart(struct item_decompressor *decompressor);

struct item_input {
    const void *bytes;
    size_t size;
    size_t taken;
    bool last; /* the input ends the item */
};

struct item_output {
    void *bytes;
    size_t size;
    size_t made;
};

/* Runs until the input is used up or the output is full. Up to three bytes of an input that is not
 * the last may be left; pass them again before the following bytes. *ended: all output has been
 * produced. */
dcp_status item_decompressor_run(struct item_decompressor *decompressor, struct item_input *input,
                                 struct item_output *output, bool *ended);
/* Sets the error for output of more than `limit` bytes. */
dcp_status item_decompressor_beyond(uint64_t limit);

/* The memory that a decompressor takes for an item, from the headers of its frames: of all, which
 * takes a walk over all blocks (whole_item), or of the first one. 0 if there is no header, so
 * nothing to decompress. */
dcp_status item_decompressor_memory(const struct byte_source *packed, bool whole_item,
                                    uint64_t *memory);

/* The end of the frame at an offset, by a walk over its blocks' headers; 0 if there is no valid one
 * inside of the source. *skippable: it has no contents. */
dcp_status item_decompressor_frame(const struct byte_source *packed, uint64_t offset, uint64_t *end,
                                   bool *skippable);

/* Decompresses a whole item of at most limit bytes. bytes: memory_release(). */
dcp_status item_decompress(const void *compressed, size_t compressed_size, uint64_t limit,
                           void **bytes, size_t *size);

#endif
