/* SPDX-License-Identifier: BSD-3-Clause */
/* The streams of a shard file, compressed by several threads: small ones in parallel, large ones
 * one by one with all threads on each. */
#ifndef STORAGE_SHARD_SHARD_COMPRESS_H
#define STORAGE_SHARD_SHARD_COMPRESS_H

#include "storage/shard/shard_output.h"
#include "storage/shard/shard_writer.h"

/* Bytes that the streams of the orders take at most. */
uint64_t shard_compressed_bound(const struct write_order *orders, size_t count);

/* Memory that compressing a file takes, at most. */
/* Bytes that each thread gathers at a time. */
#define SHARD_COMPRESS_PIECE ((size_t)256 << 10)
uint64_t shard_compress_memory(int32_t level, uint32_t thread_count);

struct shard_compress_options {
    int32_t level;
    uint32_t thread_count;      /* at least 1 */
    struct staging *staging;    /* of the sources; is stopped after a failure; NULL: none */
    struct device_lanes *lanes; /* for elements on devices */
    struct progress *progress;  /* is called for bytes before they are compressed; may be NULL */
};

/* Appends the streams in the sequence of the orders, and writes the place of each to results.
 * Memory does not depend on the streams' sizes: what zstd takes for each thread at this level,
 * and 3 MiB. */
dcp_status shard_compress_streams(struct shard_output *output, const struct write_order *orders,
                                  size_t count, const struct shard_source *sources,
                                  const struct shard_compress_options *options,
                                  struct write_result *results);

#endif
