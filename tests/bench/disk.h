/* SPDX-License-Identifier: BSD-3-Clause */
/* Files of a directory as plain bytes, and what of them is in memory. */
#ifndef BENCH_DISK_H
#define BENCH_DISK_H

#include <stddef.h>

/* Gets an open file and its size. */
typedef void disk_visitor(int file, size_t size, void *context);

/* Shows each regular file of a directory, opened for reading. Exits if it cannot. */
void disk_visit(const char *directory, disk_visitor *visit, void *context);
/* Drops what the page cache holds of the files of a directory. */
void disk_cool(const char *directory);
/* Bytes that this process has read by system calls so far. */
unsigned long long disk_bytes_read(void);

#endif
