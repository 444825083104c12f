/* SPDX-License-Identifier: BSD-3-Clause */
/* Directories of the file system, and the table. */
#include "storage/files/files.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/path.h"

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

/* What is at a path is a directory. */
static dcp_status look_for(const struct file_ops *ops, const char *path, uint32_t flags)
{
    struct file_information information;
    dcp_status status = file_look(ops, path, &information);
    if (status == DCP_ERR_NOT_FOUND)
        return dcp_error_set(DCP_ERR_NOT_FOUND, "%s: no such file or directory", path);
    RETURN_IF_ERROR(status);
    if (information.kind == FILE_REGULAR)
        return dcp_error_set(DCP_ERR_KIND, "%s is a file, not a directory", path);
    if (information.kind != FILE_DIRECTORY)
        return dcp_error_set(DCP_ERR_FORMAT, "%s is neither a directory nor a regular file", path);
    return flags & DCP_OPEN_NO_LINK ? file_check_directory(ops, path) : DCP_OK;
}

static dcp_status open_directory(void *context, const char *id, uint32_t flags, void **opened,
                                 bool *created)
{
    const struct file_ops *ops = context;
    *created = false;
    struct files_directory *directory = memory_allocate_zeroed(1, sizeof *directory);
    char *path = memory_copy_text(id);
    dcp_status status = DCP_OK;
    if (!directory || !path)
        status = error_no_memory(strlen(id) + 1, "a directory");
    else if (flags & DCP_OPEN_CREATE)
        status = file_make_directories(ops, id, flags & DCP_OPEN_DURABLE, created);
    else
        status = look_for(ops, id, flags);
    if (status != DCP_OK) {
        memory_release(directory);
        memory_release(path);
        return status;
    }
    *directory = (struct files_directory){ops, path};
    *opened = directory;
    return DCP_OK;
}

static void close_directory(void *context, void *opened)
{
    struct files_directory *directory = opened;
    (void)context;
    memory_release(directory->path);
    memory_release(directory);
}

/* Fails when something else has come to be there, which then stays. */
static void withdraw_directory(void *context, void *opened)
{
    const struct files_directory *directory = opened;
    const struct file_ops *ops = context;
    ops->remove_directory(ops->context, directory->path);
}

static void describe_directory(void *context, void *opened, dcp_storage_traits *traits)
{
    const struct files_directory *directory = opened;
    traits->far = file_is_remote(context, directory->path);
}

static dcp_status find_space(void *context, void *opened, uint64_t *bytes)
{
    const struct files_directory *directory = opened;
    return file_free_space(context, directory->path, bytes);
}

struct listing {
    dcp_storage_visitor visitor;
    void *context;
    dcp_status status;
    struct error_story story;
};

static int visit(void *context, const char *name)
{
    struct listing *listing = context;
    listing->status = listing->visitor(listing->context, name);
    if (listing->status == DCP_OK)
        return 0;
    error_save(&listing->story);
    return ECANCELED;
}

static dcp_status list_directory(void *context, void *opened, dcp_storage_visitor visitor,
                                 void *visitor_context)
{
    const struct files_directory *directory = opened;
    struct listing listing = {visitor, visitor_context, DCP_OK, {0}};
    dcp_status status = file_list(context, directory->path, visit, &listing);
    return listing.status == DCP_OK ? status : error_restore(&listing.story);
}

static dcp_status remove_file(void *context, void *opened, const char *name)
{
    const struct files_directory *directory = opened;
    char *path = path_join(directory->path, name);
    if (!path)
        return error_no_memory(strlen(directory->path) + strlen(name) + 2, "a path");
    dcp_status status = file_unlink(context, path, false);
    memory_release(path);
    return status;
}

static dcp_status sync_directory(void *context, void *opened)
{
    const struct files_directory *directory = opened;
    return file_sync_directory(context, directory->path);
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
    .close = close_directory, .withdraw = withdraw_directory, .describe = describe_directory,      \
    .free_space = find_space, .list = list_directory, .remove = remove_file,                       \
    .open_file = files_open_file, .read = files_read, .close_file = files_close_file,              \
    .create = files_create, .write = files_write, .seal = files_seal, .abandon = files_abandon,    \
    .sync = sync_directory, .prepare = files_prepare, .publish = files_publish,                    \
    .retract = files_retract, .queue_open = files_queue_open, .queue_start = files_queue_start,    \
    .queue_finish = files_queue_finish, .queue_close = files_queue_close, .is_cached = is_cached,  \
    .expect = expect, .map = map_file, .unmap = unmap_file, .ways = files_ways

dcp_storage files_storage(const struct file_ops *ops)
{
    return (dcp_storage){.context = (void *)ops, FILES_TABLE};
}

const dcp_storage *dcp_storage_files(void)
{
    static const dcp_storage files = {.context = (void *)&file_ops_system, FILES_TABLE};
    return &files;
}
