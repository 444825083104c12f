/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine's own limits: the ways in which plain bytes get onto the disk and back. */
#ifndef BENCH_DISK_WAYS_H
#define BENCH_DISK_WAYS_H

#include "disk_lane.h"

/* "large", "large-ring", "copied-ring-threads": the memory, whether by io_uring, how many threads.
 * false: there is no such way. */
bool disk_way_from_name(const char *name, struct disk_way *way);

/* The bytes of one rank, and threads that move them. */
struct disk_ways;

/* NULL: this machine lacks the way. Exits if there is no memory. */
struct disk_ways *disk_ways_new(const struct disk_way *way, size_t size);
void disk_ways_free(struct disk_ways *ways);
/* Writes a file for each thread, whose names begin with `path`, and syncs them. false: the file
 * system lacks the way. */
bool disk_ways_write(struct disk_ways *ways, const char *path);
/* Reads the part of all files of a directory that falls to one of several ranks. */
bool disk_ways_read(struct disk_ways *ways, const char *directory, int rank, int ranks);
/* Bytes that were moved so far. */
size_t disk_ways_moved(const struct disk_ways *ways);

#endif
