/* SPDX-License-Identifier: BSD-3-Clause */
/* A directory of a storage over file operations, opened for a test by the path of a file in it. */
#ifndef STORAGE_OPENED_H
#define STORAGE_OPENED_H

#include "storage/file_source.h"
#include "storage/files/files.h"
#include "storage/storage.h"

/* Must stay where it is. */
struct opened {
    dcp_storage storage;
    struct storage_directory directory;
    const char *name; /* of the file; points into the path */
};

/* On failure there is nothing to be closed. */
dcp_status opened_open(struct opened *opened, const struct file_ops *ops, const char *path);
void opened_close(struct opened *opened);

#endif
