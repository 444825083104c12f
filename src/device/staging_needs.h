/* SPDX-License-Identifier: BSD-3-Clause */
/* What a staging will take of memory, and how it keeps within a limit, before it begins. */
#ifndef DEVICE_STAGING_NEEDS_H
#define DEVICE_STAGING_NEEDS_H

#include "device/staging.h"

/* Sizes that pieces have under a limit: from the smallest, twice as much each. */
#define STAGING_PIECE_SIZES 7

struct staging_needs {
    size_t count;   /* of sources */
    uint64_t bytes; /* of all sources */
    uint64_t pool;  /* that has all of them at the same time */
    uint64_t lists[STAGING_PIECE_SIZES];
    bool packs;   /* copies from a device may go through a buffer of a piece's size */
    bool detects; /* changes */
};

void staging_needs_find(const struct staging_source *sources, size_t count, bool detect_changes,
                        struct staging_needs *needs);
/* Memory that staging so takes at a time at most, the pool among it, until staging_free(). */
uint64_t staging_needs_memory(const struct staging_needs *needs,
                              const struct staging_options *options);
/* Bytes of the pool then. */
uint64_t staging_needs_pool(const struct staging_needs *needs,
                            const struct staging_options *options);
/* Changes the options to what takes least. whole: without waves. */
void staging_needs_minimize(const struct staging_needs *needs, bool whole,
                            struct staging_options *options);
/* Changes the options so that everything is there at the same time, within so much memory; false
 * if that is too little, or more than the options' own limit. */
bool staging_needs_fit_whole(const struct staging_needs *needs, uint64_t memory,
                             struct staging_options *options);
/* Changes the options to the largest waves within so much memory. No less than the least. */
void staging_needs_fit_waves(const struct staging_needs *needs, uint64_t memory,
                             struct staging_options *options);

#endif
