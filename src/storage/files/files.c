/* SPDX-License-Identifier: BSD-3-Clause */
/* Directories of the file system, and the table. */
#include "storage/files/files.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* All but a scheme (RFC 3986): a letter, then letters, digits, "+", "-" and "."; and "://". */
static bool takes_id(void *context, const char *id)
{
    const char *end = id;
    (void)context;
    while (is_letter(*end) ||
           (end > id && ((*end >= '0' && *end <= '9') || (*end && strchr("+-.", *end)))))
        end++;
    return end == id || strncmp(end, "://", 3) != 0;
}

/* Says what is at a path that is no directory. */
static dcp_status refuse(const struct file_ops *ops, const char *path, dcp_status refused)
{
    struct file_information information;
    struct saved_error error;
    error_save(&error);
    dcp_status status = file_look(FILE_PATHS(ops), path, &information);
    if (status == DCP_ERR_NOT_FOUND)
        return dcp_error_set(DCP_ERR_NOT_FOUND, "%s: no such file or directory", path);
    if (status == DCP_OK && information.kind == FILE_REGULAR)
        return dcp_error_set(DCP_ERR_KIND, "%s is a file, not a directory", path);
    if (status == DCP_OK && information.kind != FILE_DIRECTORY)
        return dcp_error_set(DCP_ERR_FORMAT, "%s is neither a directory nor a regular file", path);
    error_restore(&error);
    return refused;
}

static dcp_status open_path(const struct file_ops *ops, const char *path, uint32_t flags,
                            struct files_directory *directory)
{
    if (flags & DCP_OPEN_CREATE)
        return file_make_directories(ops, path, flags & DCP_OPEN_DURABLE, &directory->at,
                                     &directory->made);
    dcp_status status = file_directory_open(&directory->at, FILE_PATHS(ops), path,
                                            flags & DCP_OPEN_NO_LINK ? FILE_NO_FOLLOW : 0);
    return status == DCP_ERR_FORMAT || status == DCP_ERR_NOT_FOUND ? refuse(ops, path, status)
                                                                   : status;
}

static dcp_status open_directory(void *context, const char *id, uint32_t flags, void **opened,
                                 bool *created)
{
    const struct file_ops *ops = context;
    struct files_directory *directory = memory_allocate(sizeof *directory);
    *created = false;
    if (!directory)
        return error_no_memory(sizeof *directory, "a directory");
    *directory = (struct files_directory){.made = {ops, FILE_NO_DIRECTORY, NULL}};
    dcp_status status = open_path(ops, id, flags, directory);
    if (status != DCP_OK) {
        memory_release(directory);
        return status;
    }
    *created = directory->made.above != FILE_NO_DIRECTORY;
    *opened = directory;
    return DCP_OK;
}

static dcp_status make_absolute(void *context, const char *id, char *text, size_t size)
{
    return file_absolute_path(context, id, text, size);
}

static void close_directory(void *context, void *opened)
{
    struct files_directory *directory = opened;
    (void)context;
    file_directory_close(&directory->at);
    file_made_forget(&directory->made);
    memory_release(directory);
}

static dcp_status remove_directory(void *context, void *opened)
{
    const struct files_directory *directory = opened;
    (void)context;
    return directory->made.above != FILE_NO_DIRECTORY
               ? file_made_remove(&directory->made, &directory->at)
               : file_directory_remove(&directory->at);
}

static void describe_directory(void *context, void *opened, dcp_storage_traits *traits)
{
    const struct files_directory *directory = opened;
    (void)context;
    traits->far = file_is_remote(&directory->at);
}

static dcp_status find_space(void *context, void *opened, uint64_t *bytes)
{
    const struct files_directory *directory = opened;
    (void)context;
    return file_free_space(&directory->at, bytes);
}

struct listing {
    dcp_storage_visitor visitor;
    void *context;
    dcp_status status;
    struct saved_error error;
};

static int visit(void *context, const char *name)
{
    struct listing *listing = context;
    listing->status = listing->visitor(listing->context, name);
    if (listing->status == DCP_OK)
        return 0;
    error_save(&listing->error);
    return ECANCELED;
}

static dcp_status list_directory(void *context, void *opened, dcp_storage_visitor visitor,
                                 void *visitor_context)
{
    const struct files_directory *directory = opened;
    struct listing listing = {visitor, visitor_context, DCP_OK, {0}};
    (void)context;
    dcp_status status = file_list(&directory->at, visit, &listing);
    return listing.status == DCP_OK ? status : error_restore(&listing.error);
}

static dcp_status remove_file(void *context, void *opened, const char *name)
{
    struct files_directory *directory = opened;
    (void)context;
    dcp_status status = file_unlink(&directory->at, name, false);
    atomic_fetch_add(&directory->changes, 1);
    return status;
}

static dcp_status sync_directory(void *context, void *opened)
{
    struct files_directory *directory = opened;
    unsigned changes = atomic_load(&directory->changes);
    (void)context;
    if (changes > 0 && atomic_load(&directory->durable) == changes)
        return DCP_OK;
    return file_sync_directory(&directory->at);
}

static bool is_cached(void *context, dcp_storage_file *opened, uint64_t offset, size_t size)
{
    const struct files_file *file = opened->handle;
    const struct file_ops *ops = context;
    bool cached = true;
    if (ops->cached && ops->cached(ops->context, file->file.descriptor, offset, size, &cached) != 0)
        return true;
    return cached;
}

static void expect(void *context, dcp_storage_file *opened, uint64_t offset, size_t size)
{
    const struct files_file *file = opened->handle;
    const struct file_ops *ops = context;
    if (ops->will_need)
        ops->will_need(ops->context, file->file.descriptor, offset, size);
}

static dcp_status map_file(void *context, dcp_storage_file *opened, uint64_t offset, size_t size,
                           const void **bytes, void **mapped)
{
    struct files_file *file = opened->handle;
    struct file_mapping mapping;
    (void)context;
    dcp_status status = file_map(&file->file, offset, size, &mapping);
    *bytes = mapping.bytes;
    *mapped = NULL;
    return status;
}

static void unmap_file(void *context, void *mapped, const void *bytes, size_t size)
{
    const struct file_ops *ops = context;
    (void)mapped;
    ops->unmap(ops->context, bytes, size);
}

#define FILES_TABLE                                                                                \
    .size_of = sizeof(dcp_storage), .takes = takes_id, .open = open_directory,                     \
    .close = close_directory, .remove_directory = remove_directory,                                \
    .describe = describe_directory, .free_space = find_space, .list = list_directory,              \
    .remove = remove_file, .open_file = files_open_file, .read = files_read,                       \
    .close_file = files_close_file, .create = files_create, .write = files_write,                  \
    .seal = files_seal, .abandon = files_abandon, .sync = sync_directory,                          \
    .prepare = files_prepare, .publish = files_publish, .retract = files_retract,                  \
    .queue_open = files_queue_open, .queue_start = files_queue_start,                              \
    .queue_finish = files_queue_finish, .queue_close = files_queue_close, .is_cached = is_cached,  \
    .expect = expect, .map = map_file, .unmap = unmap_file, .ways = files_ways,                    \
    .absolute = make_absolute, .identify = files_identify, .publish_over = files_publish_over

dcp_storage files_storage(const struct file_ops *ops)
{
    return (dcp_storage){.context = (void *)ops, FILES_TABLE};
}

const dcp_storage *dcp_storage_files(void)
{
    static const dcp_storage files = {.context = (void *)&file_ops_system, FILES_TABLE};
    return &files;
}
