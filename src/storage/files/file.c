/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/files/file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/path.h"

static dcp_status status_of(int error_number)
{
    switch (error_number) {
    case ENOENT:
        return DCP_ERR_NOT_FOUND;
    case EEXIST:
        return DCP_ERR_EXISTS;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return DCP_ERR_NO_SPACE;
    case ENOMEM:
        return DCP_ERR_NO_MEMORY;
    case EMFILE:
    case ENFILE:
        return DCP_ERR_FILE_LIMIT;
    case ENAMETOOLONG:
        return DCP_ERR_ARGUMENT;
    default:
        return DCP_ERR_IO;
    }
}

/* The message is set; adds the path. */
static dcp_status error_of_path(const char *verb, const char *path)
{
    return error_prefix(error_status(), "cannot %s %s", verb, path);
}

dcp_status file_error(int error_number, const char *verb, const char *path)
{
    char reason[128];
    if (error_number == FILE_ERROR_SET)
        return error_of_path(verb, path);
    return dcp_error_set(status_of(error_number), "cannot %s %s: %s", verb, path,
                         strerror_r(error_number, reason, sizeof reason));
}

/* As file_error(), of a name in a directory. */
static dcp_status name_error(int error_number, const char *verb,
                             const struct file_directory *directory, const char *name)
{
    char *path = path_join(directory->path, name);
    dcp_status status = file_error(error_number, verb, path ? path : name);
    memory_release(path);
    return status;
}

dcp_status file_transfer_error(int error_number, const char *verb, const char *path, size_t size,
                               uint64_t offset)
{
    char reason[128];
    if (error_number == FILE_ERROR_SET)
        return error_of_path(verb, path);
    return dcp_error_set(status_of(error_number),
                         "cannot %s %s: %s (%zu bytes at offset %" PRIu64 ")", verb, path,
                         strerror_r(error_number, reason, sizeof reason), size, offset);
}

/* What is opened for reading must be a file: devices, FIFOs and directories are refused by name. */
static dcp_status check_regular(struct file *file)
{
    struct file_information information;
    int result =
        file->ops->descriptor_information(file->ops->context, file->descriptor, &information);
    if (result != 0)
        return file_error(result, "look at", file->path);
    if (information.kind != FILE_REGULAR)
        return dcp_error_set(DCP_ERR_FORMAT, "%s is not a regular file", file->path);
    return DCP_OK;
}

/* Opens a name; an errno value. */
static int open_name(const struct file_directory *directory, const char *name, unsigned flags,
                     int *descriptor)
{
    const struct file_ops *ops = directory->ops;
    int result;
    do
        result = ops->open(ops->context, directory->descriptor, name, flags, descriptor);
    while (result == EINTR);
    if (result != 0)
        *descriptor = -1;
    return result;
}

dcp_status file_open(struct file *file, const struct file_directory *directory, const char *name,
                     unsigned flags)
{
    const struct file_ops *ops = directory->ops;
    *file = (struct file){.ops = ops, .descriptor = -1, .direct = -1};
    char *path = path_join(directory->path, name);
    if (path == NULL)
        return error_no_memory(strlen(directory->path) + strlen(name) + 2, "a path");
    int result = open_name(directory, name, flags, &file->descriptor);
    if (result != 0) {
        dcp_status status = file_error(result, flags & FILE_CREATE_NEW ? "create" : "open", path);
        memory_release(path);
        return status;
    }
    file->path = path;
    dcp_status status = flags & FILE_CREATE_NEW ? DCP_OK : check_regular(file);
    if (status != DCP_OK) {
        ops->close(ops->context, file->descriptor);
        file->descriptor = -1;
        file->path = NULL;
        memory_release(path);
    }
    return status;
}

dcp_status file_open_direct(struct file *file, const struct file_directory *directory,
                            const char *name, unsigned flags)
{
    int result = open_name(directory, name, flags | FILE_DIRECT, &file->direct);
    if (result == 0)
        return DCP_OK;
    if (result == EINVAL || result == EOPNOTSUPP)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "%s: the file system has no direct transfers",
                             file->path);
    return file_error(result, "open for direct transfers", file->path);
}

dcp_status file_close(struct file *file)
{
    if (file->descriptor < 0)
        return DCP_OK;
    int result = 0;
    if (file->direct >= 0)
        result = file->ops->close(file->ops->context, file->direct);
    int second = file->ops->close(file->ops->context, file->descriptor);
    result = result != 0 ? result : second;
    dcp_status status = result != 0 ? file_error(result, "close", file->path) : DCP_OK;
    file->descriptor = file->direct = -1;
    memory_release(file->path);
    file->path = NULL;
    return status;
}

dcp_status file_read(struct file *file, void *bytes, size_t size, uint64_t offset)
{
    size_t total = 0;
    while (total < size) {
        size_t done = 0;
        int result =
            file->ops->pread(file->ops->context, file->descriptor, (unsigned char *)bytes + total,
                             size - total, offset + total, &done);
        if (result == EINTR)
            continue;
        if (result != 0)
            return file_transfer_error(result, "read", file->path, size, offset);
        if (done == 0)
            return dcp_error_set(DCP_ERR_FORMAT,
                                 "%s ends at %" PRIu64 ", expected %zu bytes at offset %" PRIu64,
                                 file->path, offset + total, size, offset);
        total += done;
    }
    return DCP_OK;
}

dcp_status file_write(struct file *file, const void *bytes, size_t size, uint64_t offset)
{
    size_t total = 0;
    while (total < size) {
        size_t done = 0;
        int result = file->ops->pwrite(file->ops->context, file->descriptor,
                                       (const unsigned char *)bytes + total, size - total,
                                       offset + total, &done);
        if (result == EINTR)
            continue;
        if (result == 0 && done == 0)
            result = EIO; /* no progress and no reason: never loop on it */
        if (result != 0)
            return file_transfer_error(result, "write", file->path, size, offset);
        total += done;
    }
    return DCP_OK;
}

/* Interrupted is not failed: nothing was dropped, and an error that is still to come is reported
 * to the next call. */
dcp_status file_sync(struct file *file)
{
    int result;
    do
        result = file->ops->sync(file->ops->context, file->descriptor);
    while (result == EINTR);
    return result != 0 ? file_error(result, "sync", file->path) : DCP_OK;
}

dcp_status file_map(struct file *file, uint64_t offset, size_t size, struct file_mapping *mapping)
{
    const struct file_ops *ops = file->ops;
    *mapping = (struct file_mapping){.ops = ops, .size = size};
    if (size == 0)
        return DCP_OK;
    int result =
        ops->map ? ops->map(ops->context, file->descriptor, offset, size, &mapping->bytes) : ENODEV;
    if (result == 0)
        return DCP_OK;
    *mapping = (struct file_mapping){0};
    if (result == ENODEV || result == EOPNOTSUPP || result == ENOSYS)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "%s: the file system cannot map files",
                             file->path);
    return file_transfer_error(result, "map", file->path, size, offset);
}

dcp_status file_size(struct file *file, uint64_t *size)
{
    struct file_information information;
    int result =
        file->ops->descriptor_information(file->ops->context, file->descriptor, &information);
    if (result != 0)
        return file_error(result, "look at", file->path);
    *size = information.size;
    return DCP_OK;
}

dcp_status file_preallocate(struct file *file, uint64_t size)
{
    if (size == 0)
        return DCP_OK;
    int result;
    do
        result = file->ops->allocate(file->ops->context, file->descriptor, size);
    while (result == EINTR);
    if (result == 0 || result == EOPNOTSUPP || result == ENOSYS)
        return DCP_OK;
    char verb[64];
    snprintf(verb, sizeof verb, "allocate %" PRIu64 " bytes for", size);
    return file_error(result, verb, file->path);
}

dcp_status file_read_whole(const struct file_directory *directory, const char *name, uint64_t limit,
                           struct buffer *bytes)
{
    struct file file;
    struct saved_error error;
    uint64_t size = 0;
    RETURN_IF_ERROR(file_open(&file, directory, name, FILE_READ));
    dcp_status status = file_size(&file, &size);
    if (status == DCP_OK && (size > limit || size > SIZE_MAX))
        status = dcp_error_set(DCP_ERR_FORMAT,
                               "%s has %" PRIu64 " bytes, more than the %" PRIu64 " allowed",
                               file.path, size, limit);
    if (status == DCP_OK)
        status = buffer_reserve(bytes, (size_t)size);
    if (status == DCP_OK)
        status = file_read(&file, bytes->data + bytes->size, (size_t)size, 0);
    if (status == DCP_OK) {
        bytes->size += (size_t)size;
        return file_close(&file);
    }
    error_save(&error);
    file_close(&file);
    return error_restore(&error);
}

dcp_status file_write_new(struct file *file, const struct file_directory *directory,
                          const char *name, const void *bytes, size_t size)
{
    const struct file_ops *ops = directory->ops;
    struct saved_error error;
    RETURN_IF_ERROR(file_open(file, directory, name, FILE_CREATE_NEW));
    dcp_status status = file_write(file, bytes, size, 0);
    if (status == DCP_OK)
        return DCP_OK;
    error_save(&error);
    file_close(file);
    ops->unlink(ops->context, directory->descriptor, name);
    return error_restore(&error);
}

static dcp_status
rename_by(int (*rename)(void *context, int directory, const char *from, const char *to),
          const struct file_directory *directory, const char *from, const char *to)
{
    int result = rename(directory->ops->context, directory->descriptor, from, to);
    if (result == 0)
        return DCP_OK;
    char reason[128];
    char *path = path_join(directory->path, from);
    dcp_status status =
        dcp_error_set(status_of(result), "cannot rename %s to %s: %s", path ? path : from, to,
                      strerror_r(result, reason, sizeof reason));
    memory_release(path);
    return status;
}

dcp_status file_rename(const struct file_directory *directory, const char *from, const char *to)
{
    return rename_by(directory->ops->rename, directory, from, to);
}

dcp_status file_rename_new(const struct file_directory *directory, const char *from, const char *to)
{
    return rename_by(directory->ops->rename_new, directory, from, to);
}

dcp_status file_unlink(const struct file_directory *directory, const char *name,
                       bool missing_is_fine)
{
    const struct file_ops *ops = directory->ops;
    int result = ops->unlink(ops->context, directory->descriptor, name);
    if (result == 0 || (result == ENOENT && missing_is_fine))
        return DCP_OK;
    return name_error(result, "remove", directory, name);
}

dcp_status file_look(const struct file_directory *directory, const char *name,
                     struct file_information *information)
{
    const struct file_ops *ops = directory->ops;
    int result = ops->information(ops->context, directory->descriptor, name, information);
    if (result == ENOENT || result == ENOTDIR)
        return DCP_ERR_NOT_FOUND;
    return result != 0 ? name_error(result, "look at", directory, name) : DCP_OK;
}
