/* SPDX-License-Identifier: BSD-3-Clause */
/* What reading ahead takes: a queue, and buffers in large pages. The reader keeps lanes from one
 * range to the next, of which pieces may be under way in a lane already. */
#ifndef STORAGE_SHARD_READ_LANE_H
#define STORAGE_SHARD_READ_LANE_H

#include "storage/shard/shard_file.h"

/* Pieces at a time, at most, and the buffers that they share, at most. */
#define READ_LANE_SLOTS   8
#define READ_LANE_BUFFERS ((size_t)8 << 20)
/* A piece that goes around the page cache: a large page, which a device takes as one segment. */
#define READ_LANE_DIRECT_PIECE ((size_t)2 << 20)
#define READ_LANE_DIRECT_SLOTS (READ_LANE_BUFFERS / READ_LANE_DIRECT_PIECE)

/* Direct pieces of a range that has not been asked for yet. */
struct begun_range {
    struct shard_file *file; /* in use; NULL: nothing has begun */
    uint64_t base, end;      /* of the pieces in the file; all but the last are whole ones */
    size_t first;            /* slot of the first piece */
};

/* Pieces that have begun. */
static inline size_t begun_count(const struct begun_range *begun)
{
    return (size_t)((begun->end - begun->base + READ_LANE_DIRECT_PIECE - 1) /
                    READ_LANE_DIRECT_PIECE);
}

struct read_lane {
    struct storage_queue *queue; /* NULL until it is needed, as the buffers */
    unsigned char *buffers;
    size_t size; /* of all buffers */
    struct storage_transfer transfers[STORAGE_QUEUE_DEPTH];
    struct begun_range begun;
    struct read_lane *next; /* of those that are not in use */
};

/* A lane in which nothing has begun; one that has begun in vain waits for that. */
dcp_status read_lane_take(struct shard_reader *reader, struct read_lane **lane);
/* The lane in which the range at an offset has begun; NULL: none. */
struct read_lane *read_lane_take_begun(struct shard_file *file, uint64_t offset);
/* The first so many pieces of what has begun are the caller's from now on; waits for the others. */
void read_lane_continue(struct shard_reader *reader, struct read_lane *lane, size_t wanted);
/* idle: nothing is under way but what has begun of the next range. */
void read_lane_give(struct shard_reader *reader, struct read_lane *lane, bool idle);

dcp_status read_lane_open_queue(struct read_lane *lane, struct shard_file *file);
/* Has buffers of so many bytes together, in which nothing is under way yet if there were fewer. */
dcp_status read_lane_make_buffers(struct read_lane *lane, size_t size);
/* Starts the next piece of the next range: size: of whole pages, and a whole piece unless it is the
 * last. base and first count for the first one. */
void read_lane_begin(struct read_lane *lane, struct shard_file *file, uint64_t base, size_t first,
                     size_t size);

#endif
