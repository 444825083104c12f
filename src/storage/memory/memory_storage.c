/* SPDX-License-Identifier: BSD-3-Clause */
/* A storage that keeps checkpoints in memory. */
#include <string.h>

#include "base/content_identity.h"
#include "base/error.h"
#include "base/memory.h"
#include "storage/memory/memory_files.h"

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
            *holder = memory_add_directory(storage, id);
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
    if (file)
        file->users++;
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

static dcp_status create_file(void *context, void *opened, const char *name,
                              const dcp_storage_access *access, dcp_storage_file *out)
{
    struct memory_storage *storage = context;
    struct memory_directory *directory;
    RETURN_IF_ERROR(make_holder(storage, opened, &name, &directory));
    pthread_mutex_lock(&storage->mutex);
    bool exists = !access->published && memory_find_file(directory, name);
    pthread_mutex_unlock(&storage->mutex);
    if (exists)
        return dcp_error_set(DCP_ERR_EXISTS, "%s/%s already exists", directory->id, name);
    size_t capacity = access->estimated || access->size > SIZE_MAX ? 0 : (size_t)access->size;
    struct memory_file *file = memory_file_new(name, capacity);
    if (!file)
        return error_no_memory(capacity, "a file in memory");
    file->directory = directory;
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

/* Whether a file may appear, and why not; before: what has its name, or NULL. The mutex is held. */
static dcp_status check_place(const struct memory_file *file, const struct memory_file *before,
                              dcp_storage_condition condition, const char *identity)
{
    const char *id = file->directory->id;
    char found[DCP_STORAGE_IDENTITY] = "";
    if (condition == DCP_PUBLISH_IF_ABSENT && before)
        return dcp_error_set(DCP_ERR_EXISTS, "%s/%s already exists", id, file->name);
    if (condition != DCP_PUBLISH_OVER)
        return DCP_OK;
    if (before)
        content_identify_bytes(before->bytes, before->size, found);
    if (strcmp(found, identity) != 0)
        return dcp_error_set(DCP_ERR_BUSY,
                             "%s/%s has changed meanwhile: it was replaced or removed", id,
                             file->name);
    return DCP_OK;
}

/* The mutex is held. */
static dcp_status appear(struct memory_file *file, dcp_storage_condition condition,
                         const char *identity)
{
    struct memory_directory *directory = file->directory;
    struct memory_file *before = memory_find_file(directory, file->name);
    RETURN_IF_ERROR(check_place(file, before, condition, identity));
    if (before)
        memory_file_unlink(before);
    file->next = directory->files;
    directory->files = file;
    file->users++;
    return DCP_OK;
}

static dcp_status seal_file(void *context, dcp_storage_file *opened, uint64_t size,
                            dcp_storage_condition condition, const char *identity)
{
    struct memory_storage *storage = context;
    struct memory_file *file = opened->handle;
    dcp_status status = size > SIZE_MAX ? error_no_memory(SIZE_MAX, file->name)
                                        : memory_file_reserve(file, (size_t)size);
    pthread_mutex_lock(&storage->mutex);
    file->size = (size_t)size;
    if (status == DCP_OK)
        status = appear(file, condition, identity);
    memory_file_release(file);
    pthread_mutex_unlock(&storage->mutex);
    return status;
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

static dcp_status identify(void *context, void *opened, const char *name,
                           char identity[DCP_STORAGE_IDENTITY])
{
    struct memory_storage *storage = context;
    struct memory_directory *directory = opened;
    pthread_mutex_lock(&storage->mutex);
    const struct memory_file *file = find_named(storage, directory, name);
    if (file)
        content_identify_bytes(file->bytes, file->size, identity);
    pthread_mutex_unlock(&storage->mutex);
    return file ? DCP_OK : not_found(directory, name);
}

/* ---- the storage ---- */

dcp_status dcp_storage_memory_new(dcp_storage **made)
{
    if (!made)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the place for the storage is NULL");
    struct memory_storage *storage = memory_allocate_unpaid(sizeof *storage);
    if (!storage)
        return error_no_memory(sizeof *storage, "a storage in memory");
    *storage = (struct memory_storage){
        .table = {.size_of = sizeof storage->table,
                  .context = storage,
                  .open = memory_open_directory,
                  .close = memory_close_directory,
                  .remove_directory = memory_remove_directory,
                  .list = memory_list_directory,
                  .remove = remove_file,
                  .open_file = open_file,
                  .read = read_file,
                  .close_file = close_file,
                  .create = create_file,
                  .write = write_file,
                  .seal = seal_file,
                  .map = map_file,
                  .unmap = unmap_file,
                  .identify = identify},
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
