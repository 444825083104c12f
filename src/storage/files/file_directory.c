/* SPDX-License-Identifier: BSD-3-Clause */
/* Open directories, and directories made along a path. */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/path.h"
#include "storage/files/file.h"
#include "storage/files/sync_beside.h"

static int open_directory(const struct file_ops *ops, int above, const char *name, unsigned flags,
                          int *descriptor)
{
    int result;
    do
        result = ops->open(ops->context, above, name, flags | FILE_AS_DIRECTORY, descriptor);
    while (result == EINTR);
    return result;
}

/* What is at a name that is no directory. The system says the same of a link that it does not
 * follow and of anything else. */
static dcp_status refuse(const struct file_directory *directory, const char *name, const char *path)
{
    const struct file_ops *ops = directory->ops;
    int descriptor;
    int result = ops->open(ops->context, directory->descriptor, name, FILE_READ | FILE_NO_FOLLOW,
                           &descriptor);
    if (result == 0)
        ops->close(ops->context, descriptor);
    return dcp_error_set(DCP_ERR_FORMAT,
                         result == ELOOP ? "%s is a symbolic link, which is not followed"
                                         : "%s is not a directory",
                         path);
}

dcp_status file_directory_open(struct file_directory *opened,
                               const struct file_directory *directory, const char *name,
                               unsigned flags)
{
    *opened = (struct file_directory){directory->ops, FILE_NO_DIRECTORY, ""};
    char *path = path_join(directory->path, name);
    if (!path)
        return error_no_memory(strlen(directory->path) + strlen(name) + 2, "a path");
    int descriptor;
    int result = open_directory(directory->ops, directory->descriptor, name, flags, &descriptor);
    if (result == 0) {
        *opened = (struct file_directory){directory->ops, descriptor, path};
        return DCP_OK;
    }
    dcp_status status = result == ENOTDIR || result == ELOOP ? refuse(directory, name, path)
                                                             : file_error(result, "open", path);
    memory_release(path);
    return status;
}

void file_directory_close(struct file_directory *opened)
{
    const struct file_ops *ops = opened->ops;
    if (opened->descriptor == FILE_NO_DIRECTORY)
        return;
    ops->close(ops->context, opened->descriptor);
    memory_release((void *)(uintptr_t)opened->path);
    *opened = (struct file_directory){ops, FILE_NO_DIRECTORY, ""};
}

bool file_is_remote(const struct file_directory *directory)
{
    const struct file_ops *ops = directory->ops;
    return ops->remote != NULL && ops->remote(ops->context, directory->descriptor);
}

dcp_status file_free_space(const struct file_directory *directory, uint64_t *bytes)
{
    const struct file_ops *ops = directory->ops;
    int result;
    do
        result = ops->free_space(ops->context, directory->descriptor, bytes);
    while (result == EINTR);
    if (result == ENOSYS || result == EOPNOTSUPP) {
        *bytes = UINT64_MAX;
        return DCP_OK;
    }
    return result == 0 ? DCP_OK : file_error(result, "ask for free space at", directory->path);
}

dcp_status file_sync_directory(const struct file_directory *directory)
{
    struct sync_beside sync = {
        .ops = directory->ops, .descriptor = directory->descriptor, .of_directory = true};
    int result = sync_beside_end(&sync);
    return result != 0 ? file_error(result, "sync directory", directory->path) : DCP_OK;
}

dcp_status file_list(const struct file_directory *directory, file_visitor visitor, void *context)
{
    const struct file_ops *ops = directory->ops;
    int result = ops->list(ops->context, directory->descriptor, visitor, context);
    return result != 0 ? file_error(result, "list directory", directory->path) : DCP_OK;
}

/* ---- directories along a path ---- */

/* One directory of the path. */
struct step {
    const char *name;
    size_t path_length; /* of the path up to here */
    int above;
    int descriptor;
    bool created;
    struct sync_beside durable; /* of its entry */
};

struct way {
    const struct file_ops *ops;
    char *path;
    struct step *steps;
    size_t count; /* that have been taken */
};

/* The message has the path up to there. */
static dcp_status fail(const struct way *way, const struct step *step, int result, const char *verb)
{
    char *end = way->path + step->path_length, ended = *end;
    *end = '\0';
    dcp_status status = file_error(result, verb, way->path);
    *end = ended;
    return status;
}

/* Opens the directory, and makes it if there is none. */
static dcp_status take_step(const struct way *way, struct step *step)
{
    const struct file_ops *ops = way->ops;
    char *end = way->path + step->path_length, ended = *end;
    *end = '\0';
    int result = open_directory(ops, step->above, step->name, 0, &step->descriptor);
    if (result == ENOENT) {
        result = ops->make_directory(ops->context, step->above, step->name);
        step->created = result == 0;
        /* Another rank may have been faster. */
        if (result == 0 || result == EEXIST)
            result = open_directory(ops, step->above, step->name, 0, &step->descriptor);
    }
    if (result != 0 && step->created)
        ops->remove_directory(ops->context, step->above, step->name);
    *end = ended;
    return result == 0 ? DCP_OK : fail(way, step, result, "create directory");
}

static size_t count_names(const char *path)
{
    size_t count = 0;
    for (path += strspn(path, "/"); *path; path += strspn(path, "/"), count++)
        path += strcspn(path, "/");
    return count;
}

static dcp_status take_steps(struct way *way, int above)
{
    const char *at = way->path;
    for (size_t left = count_names(way->path); left > 0; left--) {
        at += strspn(at, "/");
        struct step *step = &way->steps[way->count];
        *step = (struct step){.name = at, .above = above};
        at += strcspn(at, "/");
        step->path_length = (size_t)(at - way->path);
        RETURN_IF_ERROR(take_step(way, step));
        above = step->descriptor;
        way->count++;
    }
    return DCP_OK;
}

/* An entry that existed already is synced too, as the process that made it may not have done so. In
 * that case a parent that may not be read is no error. */
static dcp_status await(const struct way *way, struct step *step)
{
    int result = sync_beside_end(&step->durable);
    if (result == 0 || (!step->created && (result == EACCES || result == EPERM)))
        return DCP_OK;
    return fail(way, step, result, "sync the directory of");
}

static void start_waiting(const struct way *way, size_t first)
{
    for (size_t i = first; i < way->count; i++)
        if (!way->steps[i].durable.runs)
            sync_beside_start(&way->steps[i].durable, way->ops, way->steps[i].above, true);
}

/* An entry whose sync failed may never become durable, even if a later sync succeeds. */
static void remove_created(const struct way *way, size_t first)
{
    for (size_t i = way->count; i-- > first;) {
        struct step *step = &way->steps[i];
        sync_beside_drop(&step->durable);
        way->path[step->path_length] = '\0';
        if (step->created)
            way->ops->remove_directory(way->ops->context, step->above, step->name);
    }
}

/* The first one may show that it takes long. */
static dcp_status make_durable(const struct way *way)
{
    start_waiting(way, 0);
    for (size_t i = 0; i < way->count; i++) {
        dcp_status status = await(way, &way->steps[i]);
        if (status != DCP_OK) {
            remove_created(way, i);
            return status;
        }
        if (i == 0)
            start_waiting(way, 1);
    }
    return DCP_OK;
}

/* Of the last one, if this call made it. */
static dcp_status remember(const struct way *way, struct file_made *made)
{
    const struct step *last = way->count > 0 ? &way->steps[way->count - 1] : NULL;
    if (!last || !last->created)
        return DCP_OK;
    way->path[last->path_length] = '\0';
    char *name = memory_copy_text(last->name);
    if (!name) {
        remove_created(way, way->count - 1);
        return error_no_memory(strlen(last->name) + 1, "a path");
    }
    *made = (struct file_made){way->ops, last->above, name};
    return DCP_OK;
}

static void close_unless(const struct way *way, int descriptor, int kept, int kept_above)
{
    if (descriptor != kept && descriptor != kept_above)
        way->ops->close(way->ops->context, descriptor);
}

static dcp_status walk(struct way *way, bool sync, int *descriptor, struct file_made *made)
{
    int start;
    int result =
        open_directory(way->ops, FILE_NO_DIRECTORY, *way->path == '/' ? "/" : ".", 0, &start);
    if (result != 0)
        return file_error(result, "create directory", way->path);
    dcp_status status = take_steps(way, start);
    if (status == DCP_OK && sync)
        status = make_durable(way);
    if (status == DCP_OK)
        status = remember(way, made);
    if (status == DCP_OK)
        *descriptor = way->count > 0 ? way->steps[way->count - 1].descriptor : start;
    close_unless(way, start, *descriptor, made->above);
    for (size_t i = 0; i < way->count; i++)
        close_unless(way, way->steps[i].descriptor, *descriptor, made->above);
    return status;
}

dcp_status file_make_directories(const struct file_ops *ops, const char *path, bool sync,
                                 struct file_directory *opened, struct file_made *made)
{
    int descriptor = FILE_NO_DIRECTORY;
    char *copy = memory_copy_text(path);
    size_t most = count_names(path);
    struct way way = {.ops = ops,
                      .path = memory_copy_text(path),
                      .steps = memory_allocate_array(most, sizeof *way.steps)};
    *opened = (struct file_directory){ops, FILE_NO_DIRECTORY, ""};
    *made = (struct file_made){ops, FILE_NO_DIRECTORY, NULL};
    dcp_status status = DCP_OK;
    if (!way.path || !way.steps || !copy)
        status = error_no_memory(strlen(path) + 1 + most * sizeof *way.steps, "a path");
    if (status == DCP_OK)
        status = walk(&way, sync, &descriptor, made);
    memory_release(way.steps);
    memory_release(way.path);
    if (status == DCP_OK)
        *opened = (struct file_directory){ops, descriptor, copy};
    else
        memory_release(copy);
    return status;
}

/* *removed: it was, and was not kept by what is in it, its use, or another directory's having its
 * name. */
static dcp_status remove_empty(const struct file_directory *directory, int above, const char *name,
                               bool *removed)
{
    const struct file_ops *ops = directory->ops;
    struct file_information ours, found;
    *removed = false;
    int result = ops->descriptor_information(ops->context, directory->descriptor, &ours);
    if (result == 0)
        result = ops->information(ops->context, above, name, &found);
    if (result == 0 && (ours.device != found.device || ours.number != found.number))
        return DCP_OK;
    if (result == 0)
        result = ops->remove_directory(ops->context, above, name);
    *removed = result == 0;
    if (result == 0 || result == ENOENT || result == ENOTEMPTY || result == EEXIST ||
        result == EBUSY || result == EINVAL || result == ENOTDIR)
        return DCP_OK;
    return file_error(result, "remove directory", directory->path);
}

dcp_status file_made_remove(const struct file_made *made, const struct file_directory *directory)
{
    bool removed;
    return remove_empty(directory, made->above, made->name, &removed);
}

/* Cuts a path into the directory above and the name there; above: "" where relative paths begin. */
static void cut_path(char *path, const char **above, const char **name)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        path[--length] = '\0';
    char *slash = strrchr(path, '/');
    *name = slash ? slash + 1 : path;
    *above = slash == path ? "/" : slash ? path : ".";
    if (slash)
        *slash = '\0';
}

dcp_status file_directory_remove(const struct file_directory *directory)
{
    struct file_directory holder;
    const char *above, *name;
    bool removed = false;
    char *path = memory_copy_text(directory->path);
    if (!path)
        return error_no_memory(strlen(directory->path) + 1, "a path");
    cut_path(path, &above, &name);
    dcp_status status = file_directory_open(&holder, FILE_PATHS(directory->ops), above, 0);
    if (status == DCP_OK)
        status = remove_empty(directory, holder.descriptor, name, &removed);
    if (status == DCP_OK && removed)
        status = file_sync_directory(&holder);
    file_directory_close(&holder);
    memory_release(path);
    return status == DCP_ERR_NOT_FOUND ? DCP_OK : status;
}

void file_made_forget(struct file_made *made)
{
    if (made->above == FILE_NO_DIRECTORY)
        return;
    made->ops->close(made->ops->context, made->above);
    memory_release(made->name);
    *made = (struct file_made){made->ops, FILE_NO_DIRECTORY, NULL};
}

dcp_status file_absolute_path(const struct file_ops *ops, const char *path, char *text, size_t size)
{
    size_t length = strlen(path), before = 0;
    if (*path != '/' && ops->working_directory) {
        int result = ops->working_directory(ops->context, text, size);
        if (result != 0)
            return file_error(result, "find the working directory for", path);
        before = strlen(text);
    }
    bool slash = before > 0 && text[before - 1] != '/';
    if (size <= length || size - length <= before + slash)
        return file_error(ENAMETOOLONG, "make absolute", path);
    if (slash)
        text[before++] = '/';
    memcpy(text + before, path, length + 1);
    return DCP_OK;
}
