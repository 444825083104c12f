/* SPDX-License-Identifier: BSD-3-Clause */
/* What writing a rank's files will take, before anything is written. */
#ifndef STORAGE_SHARD_SHARD_NEEDS_H
#define STORAGE_SHARD_SHARD_NEEDS_H

#include "storage/shard/shard_writer.h"

struct shard_needs {
    uint32_t files;
    uint64_t bytes;       /* of all files, footers included; if they are compressed, at most */
    uint64_t largest;     /* content of the largest file */
    uint64_t footer;      /* memory that a footer takes while it is made, at most */
    uint64_t bookkeeping; /* memory for all files together */
    uint32_t devices;     /* whose copies may take lanes */
    bool packs;           /* some elements go through another buffer on their way from a device */
    bool converts;        /* some may be converted there as well */
};

/* Makes the footers as they will be, except for the sums in them. staged: elements will be in host
 * memory, regardless of the sources. */
dcp_status shard_needs_find(const struct save_session *session, int rank,
                            const struct write_orders *orders, const struct shard_source *sources,
                            bool staged, const struct shard_write_options *options,
                            struct shard_needs *needs);
/* Memory that writing takes at a time at most. */
uint64_t shard_needs_memory(const struct shard_needs *needs,
                            const struct shard_write_options *options);
/* Changes the options to what takes least: one file after the other, through small buffers. */
void shard_needs_minimize(struct shard_write_options *options);
/* Changes the options as little as possible so that they need at most this much memory. At least
 * `least` is needed. */
void shard_needs_fit(const struct shard_needs *needs, uint64_t memory,
                     struct shard_write_options *options);

#endif
