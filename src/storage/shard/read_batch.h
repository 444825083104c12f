/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranges of files that are read at once, around the page cache, before what lies in them is asked
 * for: of pieces that are too small for several parts of each to be under way. They are read into
 * buffers in large pages, where they are checked and copied from. */
#ifndef STORAGE_SHARD_READ_BATCH_H
#define STORAGE_SHARD_READ_BATCH_H

#include "storage/shard/shard_file.h"

/* What a batch holds at most. */
#define READ_BATCH_BYTES  ((uint64_t)4 << 20)
#define READ_BATCH_RANGES ((size_t)STORAGE_QUEUE_DEPTH)

/* What shall be read: whole pages. All zero: nothing. */
struct batch_plan {
    size_t count;
    uint64_t bytes;
    struct batch_range {
        uint32_t file;
        uint64_t start, end;
    } ranges[READ_BATCH_RANGES];
};

/* Adds a range, also by extending the last one, unless it is there; false: there is no room for it.
 */
bool batch_plan_add(struct batch_plan *plan, uint32_t file, uint64_t offset, uint64_t size);
/* The same of elements from to end - 1 of a piece, row-major; also false if they are so many that
 * they are read ahead by themselves, or lie in several places. */
bool batch_plan_add_span(struct batch_plan *plan, const struct metadata_entry *entry,
                         const struct metadata_piece *piece, int64_t from, int64_t end);

struct read_batch;

/* Begins to read what the page cache lacks. NULL if that is nothing, or if it cannot be: what went
 * wrong does so again when it is read at its turn. For one thread at a time. */
struct read_batch *read_batch_begin(struct shard_reader *reader, const struct batch_plan *plan,
                                    dcp_verification verification);
/* Bytes of a file that the batch has, until it ends; waits for them. *bytes: NULL if it lacks some.
 * A range that could not be read is an error once; then the batch lacks it. batch may be NULL. */
dcp_status read_batch_find(struct read_batch *batch, const struct shard_file *file, uint64_t offset,
                           uint64_t size, const unsigned char **bytes);
/* Waits for what has not been asked for. NULL is allowed. */
void read_batch_end(struct read_batch *batch);

#endif
