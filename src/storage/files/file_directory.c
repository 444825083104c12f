/* SPDX-License-Identifier: BSD-3-Clause */
/* Open directories, and directories made along a path. */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/path.h"
#include "storage/files/file.h"

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
    const struct file_ops *ops = directory->ops;
    int result;
    do
        result = ops->sync_directory(ops->context, directory->descriptor);
    while (result == EINTR);
    return result != 0 ? file_error(result, "sync directory", directory->path) : DCP_OK;
}

dcp_status file_list(const struct file_directory *directory, file_visitor visitor, void *context)
{
    const struct file_ops *ops = directory->ops;
    int result = ops->list(ops->context, directory->descriptor, visitor, context);
    return result != 0 ? file_error(result, "list directory", directory->path) : DCP_OK;
}

/* ---- directories along a path ---- */

/* One directory of the path, whose parent is open. */
struct step {
    const struct file_ops *ops;
    int above;
    const char *name;
    const char *path; /* up to here */
    int descriptor;
    bool created;
};

/* Opens the directory, and makes it if there is none. */
static dcp_status take_step(struct step *step)
{
    const struct file_ops *ops = step->ops;
    int result = open_directory(ops, step->above, step->name, 0, &step->descriptor);
    if (result == ENOENT) {
        result = ops->make_directory(ops->context, step->above, step->name);
        step->created = result == 0;
        /* Another rank may have been faster. */
        if (result == 0 || result == EEXIST)
            result = open_directory(ops, step->above, step->name, 0, &step->descriptor);
    }
    if (result == 0)
        return DCP_OK;
    step->descriptor = FILE_NO_DIRECTORY;
    return file_error(result, "create directory", step->path);
}

/* An entry that existed already is synced too, as the process that made it may not have done so. In
 * that case a parent that may not be read is no error. */
static dcp_status make_durable(const struct step *step)
{
    const struct file_ops *ops = step->ops;
    int result;
    do
        result = ops->sync_directory(ops->context, step->above);
    while (result == EINTR);
    if (result == 0 || (!step->created && (result == EACCES || result == EPERM)))
        return DCP_OK;
    return file_error(result, "sync the directory of", step->path);
}

static dcp_status remember(const struct step *step, struct file_made *made)
{
    char *name = memory_copy_text(step->name);
    if (!name)
        return error_no_memory(strlen(step->name) + 1, "a path");
    *made = (struct file_made){step->ops, step->above, name};
    return DCP_OK;
}

/* Closes one directory and opens the next one. A created directory is removed after a failure: an
 * entry whose sync failed may never become durable, even if a later sync succeeds. */
static dcp_status go_on(struct step *step, bool last, bool sync, struct file_made *made)
{
    const struct file_ops *ops = step->ops;
    dcp_status status = take_step(step);
    if (status == DCP_OK && sync)
        status = make_durable(step);
    if (status == DCP_OK && last && step->created)
        status = remember(step, made);
    if (status != DCP_OK && step->descriptor != FILE_NO_DIRECTORY)
        ops->close(ops->context, step->descriptor);
    if (status != DCP_OK && step->created)
        ops->remove_directory(ops->context, step->above, step->name);
    if (status == DCP_OK && made->above != step->above)
        ops->close(ops->context, step->above);
    return status;
}

/* The next name of a path from `at`, ended there; *end: after it. NULL: there is none. */
static char *next_name(char *at, char **end, char *ended)
{
    at += strspn(at, "/");
    *end = at + strcspn(at, "/");
    *ended = **end;
    **end = '\0';
    return *at ? at : NULL;
}

static dcp_status walk(const struct file_ops *ops, char *path, bool sync, int *descriptor,
                       struct file_made *made)
{
    int at;
    char *end = path, ended;
    int result = open_directory(ops, FILE_NO_DIRECTORY, *path == '/' ? "/" : ".", 0, &at);
    if (result != 0)
        return file_error(result, "create directory", path);
    for (char *name; (name = next_name(end, &end, &ended)) != NULL;) {
        bool last = ended == '\0' || end[1 + strspn(end + 1, "/")] == '\0';
        struct step step = {.ops = ops, .above = at, .name = name, .path = path};
        dcp_status status = go_on(&step, last, sync, made);
        if (status != DCP_OK) {
            ops->close(ops->context, at);
            return status;
        }
        at = step.descriptor;
        *end = ended;
    }
    *descriptor = at;
    return DCP_OK;
}

dcp_status file_make_directories(const struct file_ops *ops, const char *path, bool sync,
                                 struct file_directory *opened, struct file_made *made)
{
    int descriptor = FILE_NO_DIRECTORY;
    char *partial = memory_copy_text(path), *copy = memory_copy_text(path);
    *opened = (struct file_directory){ops, FILE_NO_DIRECTORY, ""};
    *made = (struct file_made){ops, FILE_NO_DIRECTORY, NULL};
    dcp_status status = DCP_OK;
    if (!partial || !copy)
        status = error_no_memory(strlen(path) + 1, "a path");
    if (status == DCP_OK)
        status = walk(ops, partial, sync, &descriptor, made);
    memory_release(partial);
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
