/* SPDX-License-Identifier: BSD-3-Clause */
/* Compressing items as PyTorch's zstd extension does: each stream one frame, without its size and
 * without a checksum. Streams are compressed in pieces, so memory does not grow with their size. */
#ifndef FORMAT_STREAMS_ITEM_COMPRESS_H
#define FORMAT_STREAMS_ITEM_COMPRESS_H

#include <stddef.h>
#include <stdint.h>

#include "dcp/status.h"

/* For one thread, and one stream after the other. */
struct item_compressor;

/* Receives compressed bytes. Its failure ends the compression and is returned. */
typedef dcp_status (*item_compressed)(void *context, const void *bytes, size_t size);

/* Checks that a level is one of zstd's; 0 is the default level. DCP_ERR_UNSUPPORTED if built
 * without zstd. */
dcp_status item_compressor_check(int32_t level);
/* thread_count: zstd's threads for parts of a large stream; 0: compress in the calling thread. All
 * values but 0 give the same bytes. */
dcp_status item_compressor_new(int32_t level, uint32_t thread_count,
                               struct item_compressor **compressor);
/* The most memory that a compressor takes. */
uint64_t item_compressor_memory(int32_t level, uint32_t thread_count);
dcp_status item_compressor_add(struct item_compressor *compressor, const void *bytes, size_t size,
                               item_compressed receive, void *context);
/* Ends the stream; another one may follow. */
dcp_status item_compressor_end(struct item_compressor *compressor, item_compressed receive,
                               void *context);
/* Also after a failure in the middle of a stream. NULL is allowed. */
void item_compressor_free(struct item_compressor *compressor);

/* The largest compressed size of a stream of so many bytes (at most 2^63 - 1): incompressible data
 * grows by less than 1 %. */
uint64_t item_compressed_bound(uint64_t size);

#endif
