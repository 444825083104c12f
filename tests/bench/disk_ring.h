/* SPDX-License-Identifier: BSD-3-Clause */
/* Several transfers at a time, by io_uring where the build has it. */
#ifndef BENCH_DISK_RING_H
#define BENCH_DISK_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { DISK_RING_DEPTH = 8 };

/* A part of a file on its way. */
struct disk_piece {
    int file;
    bool write;
    char *bytes;  /* that are moved */
    char *memory; /* that they belong to */
    size_t size;
    size_t wanted; /* up to the end of the file */
    off_t offset;
    size_t slot;
};

struct disk_ring;

/* NULL: there is none. */
struct disk_ring *disk_ring_open(void);
/* NULL is fine. */
void disk_ring_close(struct disk_ring *ring);
/* At most DISK_RING_DEPTH are under way. Exits if it cannot. */
void disk_ring_start(struct disk_ring *ring, struct disk_piece *piece);
/* Waits for one of those under way. moved: bytes, or a negative errno value. */
struct disk_piece *disk_ring_take(struct disk_ring *ring, ssize_t *moved);

#endif
