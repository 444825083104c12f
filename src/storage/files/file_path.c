/* SPDX-License-Identifier: BSD-3-Clause */
/* Paths, and directories made along them. */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "storage/files/file.h"

bool file_is_remote(const struct file_ops *ops, const char *path)
{
    return ops->remote != NULL && ops->remote(ops->context, path);
}

dcp_status file_free_space(const struct file_ops *ops, const char *path, uint64_t *bytes)
{
    int result;
    do
        result = ops->free_space(ops->context, path, bytes);
    while (result == EINTR);
    if (result == ENOSYS || result == EOPNOTSUPP) {
        *bytes = UINT64_MAX;
        return DCP_OK;
    }
    return result == 0 ? DCP_OK : file_error(result, "ask for free space at", path);
}

/* Makes one directory whose parent is there, unless it is there as well. */
static dcp_status make_one(const struct file_ops *ops, const char *path, bool *created)
{
    *created = false;
    struct file_information information;
    dcp_status status = file_look(ops, path, &information);
    if (status == DCP_ERR_NOT_FOUND) {
        int result = ops->make_directory(ops->context, path);
        if (result == 0) {
            *created = true;
            return DCP_OK;
        }
        if (result != EEXIST)
            return file_error(result, "create directory", path);
        /* Another rank was faster. */
        status = file_look(ops, path, &information);
        if (status == DCP_ERR_NOT_FOUND)
            return file_error(ENOENT, "create directory", path);
    }
    if (status == DCP_OK && information.kind != FILE_DIRECTORY)
        return file_error(ENOTDIR, "create directory", path);
    return status;
}

/* Makes the entry of a directory durable; an errno value. path is cut and mended. */
static int sync_parent(const struct file_ops *ops, char *path, size_t length)
{
    while (length > 0 && path[length - 1] != '/')
        length--;
    if (length == 0)
        return ops->sync_directory(ops->context, ".");
    char after = path[length];
    path[length] = '\0';
    int result = ops->sync_directory(ops->context, path);
    path[length] = after;
    return result;
}

/* An entry that was there already is synced too: whoever made it may not have come that far. Then
 * a parent that may not be opened is not ours to care for. An entry whose sync failed may never
 * become durable, whatever later syncs say, so it is taken back. */
static dcp_status make_durable(const struct file_ops *ops, char *path, size_t length, bool *created)
{
    int result;
    do
        result = sync_parent(ops, path, length);
    while (result == EINTR);
    if (result == 0 || (!*created && (result == EACCES || result == EPERM)))
        return DCP_OK;
    if (*created)
        *created = ops->remove_directory(ops->context, path) != 0;
    return file_error(result, "sync the directory of", path);
}

dcp_status file_make_directories(const struct file_ops *ops, const char *path, bool sync,
                                 bool *created)
{
    *created = false;
    size_t length = strlen(path);
    char *partial = memory_copy_text(path);
    if (partial == NULL)
        return error_no_memory(length + 1, "a path");
    while (length > 1 && partial[length - 1] == '/')
        length--;
    partial[length] = '\0';
    dcp_status status = DCP_OK;
    for (size_t end = 1; end <= length && status == DCP_OK; end++) {
        char after = partial[end];
        if ((after != '/' && after != '\0') || partial[end - 1] == '/')
            continue;
        partial[end] = '\0';
        status = make_one(ops, partial, created);
        if (status == DCP_OK && sync)
            status = make_durable(ops, partial, end, created);
        partial[end] = after;
    }
    memory_release(partial);
    return status;
}
