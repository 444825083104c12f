/* SPDX-License-Identifier: BSD-3-Clause */
/* The checksums of a shard file's blocks: pages of them are read from the footer when blocks under
 * them are, and checked against what the footer's body says of each page. */
#ifndef STORAGE_SHARD_SHARD_SUMS_H
#define STORAGE_SHARD_SHARD_SUMS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "dcp/status.h"
#include "format/footer/footer.h"

struct shard_file;

/* Pages that were read last for small reads: kept for those that follow. */
enum { SHARD_SUMS_KEPT = 8 };

/* Of an open file; threads share it. */
struct shard_sums {
    uint64_t *pages; /* the checksum of each page */
    size_t page_count;
    pthread_mutex_t mutex; /* over what follows */
    uint64_t *kept;
    size_t kept_pages[SHARD_SUMS_KEPT]; /* SIZE_MAX: none */
    size_t next;
};

/* Some of the sums in memory, for one thread. All zero: none. */
struct shard_sums_window {
    uint64_t *sums;
    size_t capacity;
    uint64_t first; /* block */
    size_t count;
};

/* Most bytes that a window takes. */
#define SHARD_SUMS_WINDOW ((size_t)32 << 10)

/* All memory that it will take is taken at once. On failure there is nothing to free. */
dcp_status shard_sums_init(struct shard_sums *sums, const struct footer *footer);
void shard_sums_free(struct shard_sums *sums);

/* What the block's checksum shall be. end: behind the last block that is read next, so that a long
 * range takes few reads. DCP_ERR_CHECKSUM: of the page that it lies in. */
dcp_status shard_sums_find(struct shard_file *file, struct shard_sums_window *window,
                           uint64_t block, uint64_t end, uint64_t *sum);
/* Blocks of this range will be read: the first of their sums begin to come into the page cache. */
void shard_sums_expect(struct shard_file *file, uint64_t offset, uint64_t length);
void shard_sums_close(struct shard_sums_window *window);

#endif
