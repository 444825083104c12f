/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests for what lies near each other in a file, which one thread reads in succession: around
 * the page cache in a batch where that lacks them. Small streams are read at once, in windows. */
#ifndef STORAGE_SHARD_READ_NEIGHBOURS_H
#define STORAGE_SHARD_READ_NEIGHBOURS_H

#include "storage/shard/read_batch.h"
#include "storage/shard/shard_request.h"

/* How those of a list of requests are read. */
struct read_neighbours {
    dcp_verification verification;
    uint64_t run; /* bytes that one thread reads, at most */
    bool batched; /* what the page cache lacks is read around it */
    bool ends;    /* files may have no footers: where a stream has its elements, its ends say */
};

/* The requests are in the order of their files, and in these of their offsets. */
struct read_neighbours read_neighbours_choose(const struct shard_reader *reader,
                                              const struct shard_request *requests, size_t count,
                                              dcp_verification verification, size_t thread_count);
/* Adds a request to those that one thread reads, or is the first of them; false: it is none of
 * them. plan: of those; it begins as zeros. */
bool read_neighbours_add(const struct read_neighbours *neighbours,
                         const struct shard_request *request, struct batch_plan *plan);
/* The plan of such requests, now that their file is open. */
void read_neighbours_plan(const struct read_neighbours *neighbours, const struct shard_file *file,
                          const struct shard_request *requests, size_t count,
                          struct batch_plan *plan);
/* Reads them. batch: NULL, or what has begun of them. */
dcp_status read_neighbours(struct shard_reader *reader, const struct shard_request *requests,
                           size_t count, dcp_verification verification, struct read_batch *batch);

#endif
