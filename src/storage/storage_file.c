/* SPDX-License-Identifier: BSD-3-Clause */
/* Files of a storage. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/path.h"
#include "storage/call_status.h"
#include "storage/storage.h"

dcp_status call_status(dcp_status returned, const char *function, const char *what)
{
    if (returned == DCP_OK)
        return DCP_OK;
    char name[64];
    snprintf(name, sizeof name, "the storage's %s", function);
    if (error_checked(returned, name) != returned)
        return error_prefix(DCP_ERR_CALLBACK, "%s", what);
    if (dcp_error_message()[0] == '\0')
        return dcp_error_set(returned, "%s: the storage's %s failed, and did not say why", what,
                             function);
    return returned;
}

typedef dcp_status (*opener)(void *context, void *directory, const char *name,
                             const dcp_storage_access *access, dcp_storage_file *file);

static dcp_status open_by(opener open, const char *function, struct storage_file *file,
                          const struct storage_directory *directory, const char *name,
                          const dcp_storage_access *access)
{
    *file = (struct storage_file){0};
    char *path = path_join(directory->id, name);
    if (!path)
        return error_no_memory(strlen(directory->id) + strlen(name) + 2, "a path");
    error_clear();
    dcp_status status =
        call_status(open(directory->table->context, directory->handle, name, access, &file->file),
                    function, path);
    if (status != DCP_OK) {
        memory_release(path);
        return status;
    }
    file->directory = directory;
    file->path = path;
    return DCP_OK;
}

dcp_status storage_file_open(struct storage_file *file, const struct storage_directory *directory,
                             const char *name, const dcp_storage_access *access)
{
    return open_by(directory->table->open_file, "open_file", file, directory, name, access);
}

dcp_status storage_file_create(struct storage_file *file, const struct storage_directory *directory,
                               const char *name, const dcp_storage_access *access)
{
    return open_by(directory->table->create, "create", file, directory, name, access);
}

static void forget(struct storage_file *file)
{
    memory_release(file->path);
    *file = (struct storage_file){0};
}

void storage_file_close(struct storage_file *file)
{
    struct saved_error error;
    if (!file->directory)
        return;
    const dcp_storage *table = file->directory->table;
    error_save(&error);
    table->close_file(table->context, &file->file);
    error_restore(&error);
    forget(file);
}

dcp_status storage_file_read(struct storage_file *file, void *bytes, size_t size, uint64_t offset)
{
    const dcp_storage *table = file->directory->table;
    uint64_t whole = file->file.size;
    if (offset > whole || size > whole - offset)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "%s ends at %" PRIu64 ", expected %zu bytes at offset %" PRIu64,
                             file->path, whole, size, offset);
    if (size == 0)
        return DCP_OK;
    error_clear();
    return call_status(table->read(table->context, &file->file, bytes, size, offset), "read",
                       file->path);
}

dcp_status storage_file_write(struct storage_file *file, const void *bytes, size_t size,
                              uint64_t offset)
{
    const dcp_storage *table = file->directory->table;
    if (size == 0)
        return DCP_OK;
    error_clear();
    return call_status(table->write(table->context, &file->file, bytes, size, offset), "write",
                       file->path);
}

dcp_status storage_file_seal(struct storage_file *file, uint64_t size)
{
    const dcp_storage *table = file->directory->table;
    error_clear();
    dcp_status status =
        call_status(table->seal(table->context, &file->file, size, DCP_PUBLISH_IF_ABSENT, NULL),
                    "seal", file->path);
    forget(file);
    return status;
}

void storage_file_abandon(struct storage_file *file)
{
    struct saved_error error;
    if (!file->directory)
        return;
    const dcp_storage *table = file->directory->table;
    error_save(&error);
    (table->abandon ? table->abandon : table->close_file)(table->context, &file->file);
    error_restore(&error);
    forget(file);
}

bool storage_file_wants_alignment(struct storage_file *file)
{
    const dcp_storage *table = file->directory->table;
    return file->file.alignment > 1 &&
           (!table->ways || table->ways(table->context, &file->file, NULL) & DCP_IO_DIRECT);
}

bool storage_file_knows_cache(const struct storage_file *file)
{
    return file->directory->table->is_cached != NULL;
}

bool storage_file_is_cached(struct storage_file *file, uint64_t offset, size_t size)
{
    const dcp_storage *table = file->directory->table;
    return !table->is_cached || table->is_cached(table->context, &file->file, offset, size);
}

void storage_file_expect(struct storage_file *file, uint64_t offset, size_t size)
{
    const dcp_storage *table = file->directory->table;
    if (table->expect)
        table->expect(table->context, &file->file, offset, size);
}

dcp_status storage_file_map(struct storage_file *file, uint64_t offset, size_t size,
                            struct storage_mapping *mapping)
{
    const dcp_storage *table = file->directory->table;
    *mapping = (struct storage_mapping){.table = *table, .size = size};
    if (size == 0)
        return DCP_OK;
    error_clear();
    dcp_status status =
        table->map
            ? call_status(table->map(table->context, &file->file, offset, size, &mapping->bytes,
                                     &mapping->handle),
                          "map", file->path)
            : dcp_error_set(DCP_ERR_UNSUPPORTED, "%s: the storage cannot map files", file->path);
    if (status != DCP_OK)
        *mapping = (struct storage_mapping){0};
    return status;
}

void storage_unmap(struct storage_mapping *mapping)
{
    if (mapping->bytes)
        mapping->table.unmap(mapping->table.context, mapping->handle, mapping->bytes,
                             mapping->size);
    *mapping = (struct storage_mapping){0};
}

dcp_status storage_read_whole(const struct storage_directory *directory, const char *name,
                              uint64_t limit, struct buffer *bytes)
{
    const dcp_storage_access access = {.size_of = sizeof access, .trusted = true};
    struct storage_file file;
    RETURN_IF_ERROR(storage_file_open(&file, directory, name, &access));
    uint64_t size = file.file.size;
    dcp_status status = DCP_OK;
    if (size > limit || size > SIZE_MAX)
        status = dcp_error_set(DCP_ERR_FORMAT,
                               "%s has %" PRIu64 " bytes, more than the %" PRIu64 " allowed",
                               file.path, size, limit);
    if (status == DCP_OK)
        status = buffer_reserve(bytes, (size_t)size);
    if (status == DCP_OK && size > 0)
        status = storage_file_read(&file, bytes->data + bytes->size, (size_t)size, 0);
    if (status == DCP_OK)
        bytes->size += (size_t)size;
    storage_file_close(&file);
    return status;
}
