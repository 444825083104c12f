/* SPDX-License-Identifier: BSD-3-Clause */
/* One thread's bytes on their way between memory and a file, in one way. */
#ifndef BENCH_DISK_LANE_H
#define BENCH_DISK_LANE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Between which memory bytes go, and how. */
enum disk_memory {
    DISK_BUFFERED, /* through the page cache, which reads ahead and writes early */
    DISK_ORDINARY, /* around it, from and to ordinary pages */
    DISK_LARGE,    /* the same from and to large pages */
    DISK_COPIED    /* the same from and to a buffer in large pages; the memory is ordinary */
};

struct disk_way {
    enum disk_memory memory;
    bool ring;    /* several transfers at a time, by io_uring; else one */
    bool threads; /* several, else one */
};

/* What direct transfers are aligned to. */
enum { DISK_BLOCK = 4096 };

/* Its memory is used over and over if a lane moves more than that. */
struct disk_lane;

/* NULL: there is no io_uring. Exits if there is no memory. size: bytes of memory, at least. */
struct disk_lane *disk_lane_new(const struct disk_way *way, size_t size);
void disk_lane_free(struct disk_lane *lane);
/* Moves a range of a file, which begins at a block. Of a write, whole blocks; a read ends with the
 * file at the latest. false: the file system has no such way. */
bool disk_lane_write(struct disk_lane *lane, int file, off_t end);
bool disk_lane_read(struct disk_lane *lane, int file, off_t start, off_t end);
/* The same for less than a block, at the end of a file. */
void disk_lane_write_rest(struct disk_lane *lane, int file, off_t at, size_t size);
/* Bytes that it has moved so far. */
size_t disk_lane_moved(const struct disk_lane *lane);

#endif
