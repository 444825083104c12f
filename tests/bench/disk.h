/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine's own limits: the plainest way to get bytes onto the disk and back. */
#ifndef BENCH_DISK_H
#define BENCH_DISK_H

#include <stdbool.h>
#include <stddef.h>

/* What memory to write from must be aligned to. */
enum { DISK_BLOCK = 4096 };

/* Writes a file from memory in large pieces, directly if possible, and syncs it. Exits if it
 * cannot.
 */
void disk_write(const char *path, const void *bytes, size_t size);
/* Reads into `buffer` the part of all files of a directory that falls to one of several ranks.
 * direct: around the page cache, if possible; `buffer` must be aligned for it. */
void disk_read(const char *directory, void *buffer, size_t size, int rank, int ranks, bool direct);
/* Drops what the page cache has of the files of a directory. */
void disk_cool(const char *directory);
/* Bytes that this process has read by system calls so far. */
unsigned long long disk_bytes_read(void);

#endif
