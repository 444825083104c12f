/* SPDX-License-Identifier: BSD-3-Clause */
/* What is done with an open directory, done with the one at a path. */
#ifndef FAULT_AT_PATH_H
#define FAULT_AT_PATH_H

#include "storage/files/file.h"

static inline dcp_status make_at_path(const struct file_ops *ops, const char *path, bool sync,
                                      bool *created)
{
    struct file_directory directory;
    struct file_made made;
    dcp_status status = file_make_directories(ops, path, sync, &directory, &made);
    *created = made.above != FILE_NO_DIRECTORY;
    file_made_forget(&made);
    file_directory_close(&directory);
    return status;
}

/* A small file as a whole, durable when sync is set (its name is not). */
static inline dcp_status write_at_path(const struct file_directory *directory, const char *name,
                                       const void *bytes, size_t size, bool sync)
{
    struct file file;
    dcp_status status = file_write_new(&file, directory, name, bytes, size);
    if (status == DCP_OK && sync)
        status = file_sync(&file);
    dcp_status closed = file_close(&file);
    return status == DCP_OK ? closed : status;
}

/* Errno values. */

static inline int sync_at_path(const struct file_ops *ops, const char *path)
{
    int descriptor;
    int error = ops->open(ops->context, FILE_NO_DIRECTORY, path, FILE_AS_DIRECTORY, &descriptor);
    if (error != 0)
        return error;
    error = ops->sync_directory(ops->context, descriptor);
    ops->close(ops->context, descriptor);
    return error;
}

static inline int list_at_path(const struct file_ops *ops, const char *path, file_visitor visitor,
                               void *context)
{
    int descriptor;
    int error = ops->open(ops->context, FILE_NO_DIRECTORY, path, FILE_AS_DIRECTORY, &descriptor);
    if (error != 0)
        return error;
    error = ops->list(ops->context, descriptor, visitor, context);
    ops->close(ops->context, descriptor);
    return error;
}

#endif
