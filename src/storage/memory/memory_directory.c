/* SPDX-License-Identifier: BSD-3-Clause */
/* Directories of a storage in memory: opening, making and listing them. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "storage/memory/memory_files.h"

static char *copy_id(const char *id)
{
    size_t length = strlen(id);
    while (length > 1 && id[length - 1] == '/')
        length--;
    char *copy = memory_allocate_unpaid(length + 1);
    if (copy) {
        memcpy(copy, id, length);
        copy[length] = '\0';
    }
    return copy;
}

/* "a/b" is below "a", and "a" a directory for that. */
static bool has_below(const struct memory_storage *storage, const char *id)
{
    size_t length = strlen(id);
    const struct memory_directory *directory = storage->directories;
    while (directory && (strncmp(directory->id, id, length) != 0 || directory->id[length] != '/' ||
                         (!directory->files && !directory->made)))
        directory = directory->next;
    return directory != NULL;
}

static bool is_file(const struct memory_storage *storage, const char *id)
{
    const char *slash = strrchr(id, '/');
    if (!slash)
        return false;
    size_t length = (size_t)(slash - id);
    const struct memory_directory *directory = storage->directories;
    while (directory && (strncmp(directory->id, id, length) != 0 || directory->id[length] != '\0'))
        directory = directory->next;
    return directory && memory_find_file(directory, slash + 1);
}

struct memory_directory *memory_add_directory(struct memory_storage *storage, char *id)
{
    struct memory_directory *directory = memory_allocate_unpaid(sizeof *directory);
    if (!directory)
        return NULL;
    *directory = (struct memory_directory){.id = id, .next = storage->directories};
    storage->directories = directory;
    return directory;
}

/* The mutex is held. id becomes the directory's, or is freed. */
static dcp_status find_or_add(struct memory_storage *storage, char *id, bool create,
                              struct memory_directory **found, bool *created)
{
    struct memory_directory *directory = *found = memory_find_directory(storage, id);
    bool exists = directory && (directory->files || directory->made);
    dcp_status status = DCP_OK;
    *created = false;
    if (!exists && !create && !has_below(storage, id))
        status = is_file(storage, id)
                     ? dcp_error_set(DCP_ERR_KIND, "%s is a file, not a directory", id)
                     : dcp_error_set(DCP_ERR_NOT_FOUND, "%s: no such directory in memory", id);
    if (status == DCP_OK && !directory) {
        *found = directory = memory_add_directory(storage, id);
        if (directory)
            id = NULL;
        else
            status = error_no_memory(sizeof *directory, "a directory in memory");
    }
    if (status == DCP_OK) {
        *created = create && !exists;
        directory->made = directory->made || create;
        directory->users++;
    }
    memory_release(id);
    return status;
}

dcp_status memory_open_directory(void *context, const char *id, uint32_t flags, void **opened,
                                 bool *created)
{
    struct memory_storage *storage = context;
    struct memory_directory *directory = NULL;
    char *copy = copy_id(id);
    if (!copy)
        return error_no_memory(strlen(id) + 1, "a path");
    pthread_mutex_lock(&storage->mutex);
    dcp_status status = find_or_add(storage, copy, flags & DCP_OPEN_CREATE, &directory, created);
    pthread_mutex_unlock(&storage->mutex);
    *opened = directory;
    return status;
}

void memory_close_directory(void *context, void *opened)
{
    struct memory_storage *storage = context;
    struct memory_directory *directory = opened;
    pthread_mutex_lock(&storage->mutex);
    directory->users--;
    pthread_mutex_unlock(&storage->mutex);
}

/* A caller that has it open can still add files, which makes it exist again. */
dcp_status memory_remove_directory(void *context, void *opened)
{
    struct memory_storage *storage = context;
    struct memory_directory *directory = opened;
    pthread_mutex_lock(&storage->mutex);
    directory->made = directory->files || has_below(storage, directory->id);
    pthread_mutex_unlock(&storage->mutex);
    return DCP_OK;
}

/* A copy of the names, so that the visitor may call back. One block: names behind each other. */
static dcp_status copy_names(struct memory_storage *storage,
                             const struct memory_directory *directory, char **names, size_t *size)
{
    *size = 0;
    pthread_mutex_lock(&storage->mutex);
    for (const struct memory_file *file = directory->files; file; file = file->next)
        *size += strlen(file->name) + 1;
    char *next = *names = memory_allocate(*size);
    for (const struct memory_file *file = directory->files; file && next; file = file->next)
        next = (char *)memcpy(next, file->name, strlen(file->name) + 1) + strlen(file->name) + 1;
    pthread_mutex_unlock(&storage->mutex);
    return *names ? DCP_OK : error_no_memory(*size, "names of files");
}

/* The directory below of that number, as the part of its id up to the next slash. */
static dcp_status visit_below(struct memory_storage *storage, const char *id,
                              dcp_storage_visitor visitor, void *context)
{
    size_t length = strlen(id), index = 0;
    for (;;) {
        char name[256];
        size_t at = 0;
        pthread_mutex_lock(&storage->mutex);
        const struct memory_directory *below = storage->directories;
        while (below && at++ < index)
            below = below->next;
        index++;
        bool ends = !below;
        bool is_below = below && strncmp(below->id, id, length) == 0 && below->id[length] == '/' &&
                        (below->files || below->made);
        name[0] = '\0';
        if (is_below) {
            size_t part = strcspn(below->id + length + 1, "/");
            bool direct = below->id[length + 1 + part] == '\0' && part < sizeof name;
            memcpy(name, below->id + length + 1, direct ? part : 0);
            name[direct ? part : 0] = '\0';
        }
        pthread_mutex_unlock(&storage->mutex);
        if (ends)
            return DCP_OK;
        if (name[0])
            RETURN_IF_ERROR(visitor(context, name));
    }
}

dcp_status memory_list_directory(void *context, void *opened, dcp_storage_visitor visitor,
                                 void *visitor_context)
{
    struct memory_storage *storage = context;
    const struct memory_directory *directory = opened;
    size_t size = 0;
    char *names;
    RETURN_IF_ERROR(copy_names(storage, directory, &names, &size));
    dcp_status status = DCP_OK;
    for (size_t at = 0; at < size && status == DCP_OK; at += strlen(names + at) + 1)
        status = visitor(visitor_context, names + at);
    memory_release(names);
    return status == DCP_OK ? visit_below(storage, directory->id, visitor, visitor_context)
                            : status;
}
