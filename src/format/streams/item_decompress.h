/* SPDX-License-Identifier: BSD-3-Clause */
/* Decompressing items: all zstd frames of one, skippable ones among them, while they come. Without
 * zstd in the build every call but the freeing is DCP_ERR_UNSUPPORTED. */
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
    bool last; /* nothing of the item follows */
};

struct item_output {
    void *bytes;
    size_t size;
    size_t made;
};

/* Goes on until the input is taken or there is no more room. Of an input that is not the last, up
 * to three bytes may be left, to be given again in front of what follows. *ended: all is out. */
dcp_status item_decompressor_run(struct item_decompressor *decompressor, struct item_input *input,
                                 struct item_output *output, bool *ended);
/* More than `limit` bytes came out. */
dcp_status item_decompressor_beyond(uint64_t limit);

/* Memory that a decompressor takes for an item, by the headers in it. With whole_item those of all
 * its frames are looked at, block by block; else those of the first. 0 where there is no header:
 * then there is nothing to decompress. */
dcp_status item_decompressor_memory(const struct byte_source *packed, bool whole_item,
                                    uint64_t *memory);

/* All of an item at once; never more than limit bytes. bytes: memory_release(). */
dcp_status item_decompress(const void *compressed, size_t compressed_size, uint64_t limit,
                           void **bytes, size_t *size);

#endif
