/* SPDX-License-Identifier: BSD-3-Clause */
/* The beginning of a load: one rank finds the checkpoint and reads its metadata, all have it.
 *
 * Where the coordinator's cache knows metadata of the same structure from a load before, ranks are
 * told only what has changed since. Those that turn out not to know it can then be told all. */
#ifndef CHECKPOINT_LOAD_LOAD_OPEN_H
#define CHECKPOINT_LOAD_LOAD_OPEN_H

#include "checkpoint/hooks/loading.h"
#include "checkpoint/load/load_stored.h"

/* What a load begins with, on this rank. */
struct load_origin {
    const char *path; /* NULL or "" unless at the coordinator: inferred */
    const dcp_load_options *options;
    bool coordinates;
    struct progress *progress;
};

/* Collective; every rank brings its status. Chooses the storage, too: hooks of a storage reader get
 * to the loading. After success by_changes is the same on all ranks. */
dcp_status load_open(const struct load_origin *origin, dcp_status status,
                     struct dcp_loading *loading, struct load_stored *stored);
/* After changes were told: all of it, for the ranks that did not know the rest. Collective. */
dcp_status load_open_whole(const struct load_origin *origin, const struct dcp_loading *loading,
                           struct load_stored *stored);

#endif
