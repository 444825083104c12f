/* SPDX-License-Identifier: BSD-3-Clause */
/* Every hook that there is, for saves and loads of versions: those that can do what the library
 * does call it, and then the faults come out of them; or a storage of one's own over the same
 * simulated file system. */
#ifndef FAULT_VERSION_HOOKS_H
#define FAULT_VERSION_HOOKS_H

#include "dcp.h"
#include "fault/versions.h"
#include "storage/files/files.h"
#include "storages/awkward_storage.h"

/* The hooks of one rank; must stay where they are. */
struct version_hooks {
    const struct file_ops *ops;
    int rank;
    dcp_state *copied; /* what the planner saves in the place of the state */
    void *metadata;    /* that was read */
    size_t metadata_size;
    char own_path[64]; /* of the file that was written; "": none */
    dcp_save_planner save_planner;
    dcp_storage_writer writer;
    dcp_load_planner load_planner;
    dcp_storage_reader reader;
    dcp_storage files;
    struct awkward_storage storage; /* over these */
};

void version_hooks_init(struct version_hooks *hooks, const struct file_ops *ops, int rank);
/* Either sets the storage as well: the simulated file system, or the one of one's own. */
void version_hooks_save(struct version_hooks *hooks, enum version_hooked how,
                        dcp_save_options *options);
void version_hooks_load(struct version_hooks *hooks, enum version_hooked how,
                        dcp_load_options *options);
void version_hooks_free(struct version_hooks *hooks);

#endif
