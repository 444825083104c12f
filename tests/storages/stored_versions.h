/* SPDX-License-Identifier: BSD-3-Clause */
/* Checkpoints of which a number tells every element, saved and found in any storage by ranks that
 * must all end alike. */
#ifndef STORAGES_STORED_VERSIONS_H
#define STORAGES_STORED_VERSIONS_H

#include "dcp.h"

/* Found instead of a version. */
#define STORED_NOTHING 0
#define STORED_CORRUPT -1 /* always a bug */

/* How versions are saved and loaded. */
struct stored_versions {
    const dcp_storage *storage;
    const char *path;
    int ranks;
    int64_t rows; /* of the matrix of 1024 columns of float32, a multiple of the ranks */
    dcp_save_options saving;
    dcp_load_options loading;
    bool asynchronous;
    dcp_save_chain_options chain; /* then */
    char message[1024];           /* of the last call; "" if it succeeded */
};

/* Saves a version. The test fails if one rank ends otherwise than another. */
dcp_status stored_version_save(struct stored_versions *versions, int version);
/* Loads what is there and compares all of it. *version: what it is, if the load succeeded. */
dcp_status stored_version_load(struct stored_versions *versions, int *version);
/* The version that is there, whole; STORED_NOTHING, or STORED_CORRUPT for whatever cannot be
 * loaded. */
int stored_version_find(struct stored_versions *versions);
/* Files in the directory whose names end so; "": all. */
int stored_version_count_files(const struct stored_versions *versions, const char *end);

#endif
