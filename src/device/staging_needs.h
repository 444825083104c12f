/* SPDX-License-Identifier: BSD-3-Clause */
/* Computes, before a staging begins, the memory that it will take, and how to keep it within a
 * limit. */
#ifndef DEVICE_STAGING_NEEDS_H
#define DEVICE_STAGING_NEEDS_H

#include "device/staging.h"

/* The number of sizes that pieces may have under a limit; each is twice the one before. */
#define STAGING_PIECE_SIZES 7

struct staging_needs {
    size_t count;   /* of sources */
    uint64_t bytes; /* of all sources */
    uint64_t pool;  /* bytes of a pool that holds all sources at the same time */
    uint64_t lists[STAGING_PIECE_SIZES];
    bool packs;   /* copies from a device may go through a buffer of a piece's size */
    bool detects; /* changes to sources are detected */
};

void staging_needs_find(const struct staging_source *sources, size_t count, bool detect_changes,
                        struct staging_needs *needs);
/* The most memory that staging with these options takes at a time, including the pool, until
 * staging_free(). */
uint64_t staging_needs_memory(const struct staging_needs *needs,
                              const struct staging_options *options);
/* Bytes of the pool with these options. */
uint64_t staging_needs_pool(const struct staging_needs *needs,
                            const struct staging_options *options);
/* Changes the options to those that take the least memory. whole: without waves. */
void staging_needs_minimize(const struct staging_needs *needs, bool whole,
                            struct staging_options *options);
/* Changes the options so that all copies are in memory at the same time, within so much memory.
 * False if that is too little, or if the pool would exceed the options' own limit. */
bool staging_needs_fit_whole(const struct staging_needs *needs, uint64_t memory,
                             struct staging_options *options);
/* Changes the options to the largest waves within so much memory, but no smaller than
 * staging_needs_minimize() makes them. */
void staging_needs_fit_waves(const struct staging_needs *needs, uint64_t memory,
                             struct staging_options *options);

#endif
