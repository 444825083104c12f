/* SPDX-License-Identifier: BSD-3-Clause */
/* A storage that keeps checkpoints in memory. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "storage/memory/memory_files.h"

/* ---- directories ---- */

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

static struct memory_directory *add_directory(struct memory_storage *storage, char *id)
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
        *found = directory = add_directory(storage, id);
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

static dcp_status open_directory(void *context, const char *id, uint32_t flags, void **opened,
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

static void close_directory(void *context, void *opened)
{
    struct memory_storage *storage = context;
    struct memory_directory *directory = opened;
    pthread_mutex_lock(&storage->mutex);
    directory->users--;
    pthread_mutex_unlock(&storage->mutex);
}

static void withdraw_directory(void *context, void *opened)
{
    struct memory_storage *storage = context;
    struct memory_directory *directory = opened;
    pthread_mutex_lock(&storage->mutex);
    directory->made = directory->files != NULL;
    pthread_mutex_unlock(&storage->mutex);
}

/* A copy of the names, so that the visitor may call back. One block: names behind each other. */
static dcp_status copy_names(struct memory_storage *storage,
                             const struct memory_directory *directory, char **names, size_t *size)
{
    *size = 0;
    pthread_mutex_lock(&storage->mutex);
    for (const struct memory_file *file = directory->files; file; file = file->next)
        *size += file->sealed ? strlen(file->name) + 1 : 0;
    char *next = *names = memory_allocate(*size);
    for (const struct memory_file *file = directory->files; file && next; file = file->next)
        if (file->sealed)
            next =
                (char *)memcpy(next, file->name, strlen(file->name) + 1) + strlen(file->name) + 1;
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

static dcp_status list_directory(void *context, void *opened, dcp_storage_visitor visitor,
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

static dcp_status not_found(const struct memory_directory *directory, const char *name)
{
    return dcp_error_set(DCP_ERR_NOT_FOUND, "%s/%s: no such file in memory", directory->id, name);
}

/* The mutex is held. */
static struct memory_file *find_named(const struct memory_storage *storage,
                                      struct memory_directory *directory, const char *name)
{
    const struct memory_directory *holder = memory_find_holder(storage, directory, &name);
    return holder ? memory_find_file(holder, name) : NULL;
}

/* The directory for a new file, and the name that it has there. */
static dcp_status make_holder(struct memory_storage *storage, struct memory_directory *directory,
                              const char **name, struct memory_directory **holder)
{
    char *id = NULL;
    pthread_mutex_lock(&storage->mutex);
    *holder = memory_find_holder(storage, directory, name);
    if (!*holder) {
        const char *last = strrchr(*name, '/') + 1;
        size_t above = strlen(directory->id) + 1, length = (size_t)(last - *name);
        id = memory_allocate_unpaid(above + length);
        if (id) {
            memcpy(id, directory->id, above - 1);
            id[above - 1] = '/';
            memcpy(id + above, *name, length - 1);
            id[above + length - 1] = '\0';
            *holder = add_directory(storage, id);
            *name = last;
        }
    }
    pthread_mutex_unlock(&storage->mutex);
    if (*holder)
        return DCP_OK;
    memory_release(id);
    return error_no_memory(strlen(directory->id) + strlen(*name), "a directory in memory");
}

static dcp_status remove_file(void *context, void *opened, const char *name)
{
    struct memory_storage *storage = context;
    struct memory_directory *directory = opened;
    pthread_mutex_lock(&storage->mutex);
    struct memory_file *file = find_named(storage, directory, name);
    if (file)
        memory_file_unlink(file);
    pthread_mutex_unlock(&storage->mutex);
    return file ? DCP_OK : not_found(directory, name);
}

/* ---- files ---- */

static dcp_status open_file(void *context, void *opened, const char *name,
                            const dcp_storage_access *access, dcp_storage_file *out)
{
    struct memory_storage *storage = context;
    struct memory_directory *directory = opened;
    (void)access;
    pthread_mutex_lock(&storage->mutex);
    struct memory_file *file = find_named(storage, directory, name);
    if (file && file->sealed)
        file->users++;
    else
        file = NULL;
    pthread_mutex_unlock(&storage->mutex);
    if (!file)
        return not_found(directory, name);
    *out = (dcp_storage_file){.handle = file, .size = file->size};
    return DCP_OK;
}

static dcp_status read_file(void *context, dcp_storage_file *opened, void *bytes, size_t size,
                            uint64_t offset)
{
    const struct memory_file *file = opened->handle;
    (void)context;
    memcpy(bytes, file->bytes + offset, size);
    return DCP_OK;
}

static void close_file(void *context, dcp_storage_file *opened)
{
    struct memory_storage *storage = context;
    pthread_mutex_lock(&storage->mutex);
    memory_file_release(opened->handle);
    pthread_mutex_unlock(&storage->mutex);
}

/* Names the file in its directory, which is a user of it; the mutex is held. */
static void enter(struct memory_directory *directory, struct memory_file *file)
{
    file->directory = directory;
    file->next = directory->files;
    directory->files = file;
    file->users++;
}

static dcp_status create_file(void *context, void *opened, const char *name,
                              const dcp_storage_access *access, dcp_storage_file *out)
{
    struct memory_storage *storage = context;
    struct memory_directory *directory;
    RETURN_IF_ERROR(make_holder(storage, opened, &name, &directory));
    size_t capacity = access->estimated || access->size > SIZE_MAX ? 0 : (size_t)access->size;
    struct memory_file *file = memory_file_new(name, capacity);
    if (!file)
        return error_no_memory(capacity, "a file in memory");
    pthread_mutex_lock(&storage->mutex);
    bool exists = memory_find_file(directory, name) != NULL;
    if (exists)
        memory_file_release(file);
    else
        enter(directory, file);
    pthread_mutex_unlock(&storage->mutex);
    if (exists)
        return dcp_error_set(DCP_ERR_EXISTS, "%s/%s is there already", directory->id, name);
    *out = (dcp_storage_file){.handle = file};
    return DCP_OK;
}

static dcp_status write_file(void *context, dcp_storage_file *opened, const void *bytes,
                             size_t size, uint64_t offset)
{
    struct memory_file *file = opened->handle;
    (void)context;
    if (offset > SIZE_MAX - size)
        return error_no_memory(SIZE_MAX, file->name);
    RETURN_IF_ERROR(memory_file_reserve(file, (size_t)offset + size));
    pthread_rwlock_rdlock(&file->lock);
    memcpy(file->bytes + offset, bytes, size);
    pthread_rwlock_unlock(&file->lock);
    return DCP_OK;
}

static dcp_status seal_file(void *context, dcp_storage_file *opened, uint64_t size)
{
    struct memory_storage *storage = context;
    struct memory_file *file = opened->handle;
    dcp_status status = size > SIZE_MAX ? error_no_memory(SIZE_MAX, file->name)
                                        : memory_file_reserve(file, (size_t)size);
    pthread_mutex_lock(&storage->mutex);
    file->size = status == DCP_OK ? (size_t)size : 0;
    file->sealed = status == DCP_OK;
    /* What is no file must not keep the name. */
    if (!file->sealed && file->directory)
        memory_file_unlink(file);
    memory_file_release(file);
    pthread_mutex_unlock(&storage->mutex);
    return status;
}

static void abandon_file(void *context, dcp_storage_file *opened)
{
    struct memory_storage *storage = context;
    struct memory_file *file = opened->handle;
    pthread_mutex_lock(&storage->mutex);
    if (file->directory)
        memory_file_unlink(file);
    memory_file_release(file);
    pthread_mutex_unlock(&storage->mutex);
}

static dcp_status map_file(void *context, dcp_storage_file *opened, uint64_t offset, size_t size,
                           const void **bytes, void **mapping)
{
    struct memory_storage *storage = context;
    struct memory_file *file = opened->handle;
    (void)size;
    pthread_mutex_lock(&storage->mutex);
    file->users++;
    pthread_mutex_unlock(&storage->mutex);
    *bytes = file->bytes + offset;
    *mapping = file;
    return DCP_OK;
}

static void unmap_file(void *context, void *mapping, const void *bytes, size_t size)
{
    struct memory_storage *storage = context;
    (void)bytes, (void)size;
    pthread_mutex_lock(&storage->mutex);
    memory_file_release(mapping);
    pthread_mutex_unlock(&storage->mutex);
}

/* ---- publications: files that are in no directory yet ---- */

struct publication {
    struct memory_directory *directory;
    struct memory_file *file;
};

static dcp_status prepare(void *context, void *opened, const char *name, const void *bytes,
                          size_t size, bool durable, void **prepared)
{
    struct memory_directory *directory;
    (void)durable;
    RETURN_IF_ERROR(make_holder(context, opened, &name, &directory));
    struct publication *publication = memory_allocate_unpaid(sizeof *publication);
    struct memory_file *file = publication ? memory_file_new(name, size) : NULL;
    if (!file) {
        memory_release(publication);
        return error_no_memory(size, "a file in memory");
    }
    if (size > 0)
        memcpy(file->bytes, bytes, size);
    file->size = size;
    file->sealed = true;
    *publication = (struct publication){directory, file};
    *prepared = publication;
    return DCP_OK;
}

static dcp_status publish(void *context, void *prepared, dcp_storage_condition condition,
                          bool *visible)
{
    struct memory_storage *storage = context;
    const struct publication *publication = prepared;
    struct memory_file *file = publication->file;
    pthread_mutex_lock(&storage->mutex);
    struct memory_file *before = memory_find_file(publication->directory, file->name);
    bool refused = before && condition == DCP_PUBLISH_IF_ABSENT;
    if (refused)
        dcp_error_set(DCP_ERR_EXISTS, "%s/%s is there already", publication->directory->id,
                      file->name);
    else if (before)
        memory_file_unlink(before);
    if (!refused)
        enter(publication->directory, file);
    memory_file_release(file);
    pthread_mutex_unlock(&storage->mutex);
    memory_release(prepared);
    *visible = !refused;
    return refused ? DCP_ERR_EXISTS : DCP_OK;
}

static void retract(void *context, void *prepared)
{
    struct memory_storage *storage = context;
    const struct publication *publication = prepared;
    pthread_mutex_lock(&storage->mutex);
    memory_file_release(publication->file);
    pthread_mutex_unlock(&storage->mutex);
    memory_release(prepared);
}

/* ---- the storage ---- */

dcp_status dcp_storage_memory_new(dcp_storage **made)
{
    if (!made)
        return dcp_error_set(DCP_ERR_ARGUMENT, "there is no place for the storage");
    struct memory_storage *storage = memory_allocate_unpaid(sizeof *storage);
    if (!storage)
        return error_no_memory(sizeof *storage, "a storage in memory");
    *storage = (struct memory_storage){
        .table = {.size_of = sizeof storage->table,
                  .context = storage,
                  .open = open_directory,
                  .close = close_directory,
                  .withdraw = withdraw_directory,
                  .list = list_directory,
                  .remove = remove_file,
                  .open_file = open_file,
                  .read = read_file,
                  .close_file = close_file,
                  .create = create_file,
                  .write = write_file,
                  .seal = seal_file,
                  .abandon = abandon_file,
                  .prepare = prepare,
                  .publish = publish,
                  .retract = retract,
                  .map = map_file,
                  .unmap = unmap_file},
    };
    pthread_mutex_init(&storage->mutex, NULL);
    *made = &storage->table;
    return DCP_OK;
}

void dcp_storage_memory_free(dcp_storage *table)
{
    if (!table)
        return;
    struct memory_storage *storage = table->context;
    while (storage->directories) {
        struct memory_directory *directory = storage->directories;
        storage->directories = directory->next;
        while (directory->files)
            memory_file_unlink(directory->files);
        memory_release(directory->id);
        memory_release(directory);
    }
    pthread_mutex_destroy(&storage->mutex);
    memory_release(storage);
}
