/* SPDX-License-Identifier: BSD-3-Clause */
/* The beginning of a load: one rank finds the checkpoint and reads its metadata, all have it. */
#ifndef CHECKPOINT_LOAD_OPEN_H
#define CHECKPOINT_LOAD_OPEN_H

#include "checkpoint/loading.h"

/* What a load begins with, on this rank. */
struct load_origin {
    const struct file_ops *ops;
    const char *path; /* NULL or "" unless at the coordinator: inferred */
    const dcp_load_options *options;
    bool coordinates;
    struct progress *progress;
};

/* Collective; every rank brings its status. Chooses the storage, too: hooks of a storage reader get
 * to the loading. metadata has been initialized. */
dcp_status load_open(const struct load_origin *origin, dcp_status status,
                     struct dcp_loading *loading, struct metadata *metadata,
                     struct shard_reader **reader);

#endif
