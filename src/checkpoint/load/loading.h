/* SPDX-License-Identifier: BSD-3-Clause */
/* One load on one rank, from the first step to the last; hooks know it as a dcp_loading. Its steps
 * are in a table (load_steps.h). */
#ifndef CHECKPOINT_LOAD_LOADING_H
#define CHECKPOINT_LOAD_LOADING_H

#include "checkpoint/hooks/hooks.h"
#include "checkpoint/load/load_fill.h"
#include "checkpoint/load/load_limit.h"
#include "checkpoint/load/load_planning.h"
#include "checkpoint/load/load_steps.h"
#include "checkpoint/operation/operation.h"
#include "checkpoint/share/load_sharing.h"
#include "storage/storage.h"

struct dcp_loading {
    const char *path; /* NULL or "": as at the coordinator */
    dcp_load_options options;
    bool coordinates;
    struct operation operation;
    dcp_storage own;          /* of the options */
    const dcp_storage *files; /* the storage of the path: own, or the file system */
    struct load_steps steps;
    struct load_hooks *hooks; /* of steps that call hooks */
    struct hooks_kind kind;
    struct load_planning planning;
    struct load_limit limit;
    struct loaded_objects objects;
    uint64_t items; /* that are read */
    uint64_t bytes_wanted;
    bool begun; /* destinations may have been changed */
};

dcp_status loading_agree(const struct dcp_loading *loading, const char *phase, dcp_status status);
/* The parts of it that sharing needs. */
struct load_sharing loading_sharing(struct dcp_loading *loading);

#endif
