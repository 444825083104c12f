/* SPDX-License-Identifier: BSD-3-Clause */
/* Small streams that lie next to each other in a file: they are read at once, in windows. */
#ifndef STORAGE_SHARD_READ_NEIGHBOURS_H
#define STORAGE_SHARD_READ_NEIGHBOURS_H

#include "storage/shard/shard_request.h"

/* How those of a list of requests are read. */
struct read_neighbours {
    uint64_t run; /* bytes that one thread reads, at most */
    bool shared;  /* other ranks probably read some of them as well */
};

/* The requests are in the order of their files, and in these of their offsets. */
struct read_neighbours read_neighbours_choose(const struct shard_reader *reader,
                                              const struct shard_request *requests, size_t count,
                                              size_t thread_count);
/* Whether the thread that reads the requests from `first` to the one before this one reads this one
 * as well. */
bool read_neighbours_include(const struct read_neighbours *neighbours,
                             const struct shard_request *first,
                             const struct shard_request *request);
/* Where requests that include each other lie in their file, if they are read at once; false: a part
 * at a time. */
bool read_neighbours_range(const struct read_neighbours *neighbours,
                           const struct shard_request *requests, size_t count,
                           struct shard_range *range);
/* Reads such requests. next: as in shard_file_read_ahead(). */
dcp_status read_neighbours(struct shard_reader *reader, const struct read_neighbours *neighbours,
                           const struct shard_request *requests, size_t count,
                           dcp_verification verification, const struct shard_range *next);

#endif
