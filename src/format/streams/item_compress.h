/* SPDX-License-Identifier: BSD-3-Clause */
/* Compressing items as PyTorch's zstd extension does: each stream one frame, without its size and
 * without a checksum. A stream passes through bit by bit, so that memory does not grow with it. */
#ifndef FORMAT_STREAMS_ITEM_COMPRESS_H
#define FORMAT_STREAMS_ITEM_COMPRESS_H

#include <stddef.h>
#include <stdint.h>

#include "dcp/status.h"

/* For one thread, and one stream after the other. */
struct item_compressor;

/* Receives what was compressed. A failure ends the compression and is its result. */
typedef dcp_status (*item_compressed)(void *context, const void *bytes, size_t size);

/* Whether a level (0: the usual one) is one of zstd's. Without zstd in the build:
 * DCP_ERR_UNSUPPORTED. */
dcp_status item_compressor_check(int32_t level);
/* thread_count: how many threads of its own compress parts of a large stream side by side; 0: the
 * calling one does it. All but 0 give the same bytes. */
dcp_status item_compressor_new(int32_t level, uint32_t thread_count,
                               struct item_compressor **compressor);
/* Memory that a compressor takes, at most. */
uint64_t item_compressor_memory(int32_t level, uint32_t thread_count);
dcp_status item_compressor_add(struct item_compressor *compressor, const void *bytes, size_t size,
                               item_compressed receive, void *context);
/* Ends the stream; another one may follow. */
dcp_status item_compressor_end(struct item_compressor *compressor, item_compressed receive,
                               void *context);
/* After a failure in the middle of a stream, too. NULL is fine. */
void item_compressor_free(struct item_compressor *compressor);

/* What a stream of so many bytes (at most 2^63 - 1) is compressed to at most: what cannot be
 * compressed grows by less than a hundredth. */
uint64_t item_compressed_bound(uint64_t size);

#endif
