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

/* The mutex is held. NULL: there is no file of that name. */
static const struct memory_file *find_sealed(const struct memory_directory *directory,
                                             const char *name, char identity[DCP_STORAGE_IDENTITY])
{
    const struct memory_file *file = memory_find_file(directory, name);
    if (!file || !file->sealed)
        return NULL;
    content_identify_bytes(file->bytes, file->size, identity);
    return file;
}

static dcp_status identify(void *context, void *opened, const char *name,
                           char identity[DCP_STORAGE_IDENTITY])
{
    struct memory_storage *storage = context;
    struct memory_directory *directory = opened;
    const char *last = name;
    pthread_mutex_lock(&storage->mutex);
    const struct memory_directory *holder = memory_find_holder(storage, directory, &last);
    bool found = holder && find_sealed(holder, last, identity);
    pthread_mutex_unlock(&storage->mutex);
    return found ? DCP_OK : not_found(directory, name);
}

/* Whether a publication may appear, and why not; the mutex is held. */
static dcp_status check_place(const struct publication *publication,
                              dcp_storage_condition condition, const char *identity)
{
    const struct memory_directory *directory = publication->directory;
    const char *name = publication->file->name;
    char found[DCP_STORAGE_IDENTITY];
    if (identity && (!find_sealed(directory, name, found) || strcmp(found, identity) != 0))
        return dcp_error_set(DCP_ERR_BUSY, "%s/%s is not what it was", directory->id, name);
    if (condition == DCP_PUBLISH_IF_ABSENT && memory_find_file(directory, name))
        return dcp_error_set(DCP_ERR_EXISTS, "%s/%s is there already", directory->id, name);
    return DCP_OK;
}

/* identity: NULL, or that of the file which is to be there. */
static dcp_status appear(struct memory_storage *storage, struct publication *publication,
                         dcp_storage_condition condition, const char *identity, bool *visible)
{
    struct memory_file *file = publication->file;
    pthread_mutex_lock(&storage->mutex);
    dcp_status status = check_place(publication, condition, identity);
    *visible = status == DCP_OK;
    if (status == DCP_OK) {
        struct memory_file *before = memory_find_file(publication->directory, file->name);
        if (before)
            memory_file_unlink(before);
        enter(publication->directory, file);
    }
    memory_file_release(file);
    pthread_mutex_unlock(&storage->mutex);
    memory_release(publication);
    return status;
}

static dcp_status publish(void *context, void *prepared, dcp_storage_condition condition,
                          bool *visible)
{
    return appear(context, prepared, condition, NULL, visible);
}

static dcp_status publish_over(void *context, void *prepared, const char *identity, bool *visible)
{
    return appear(context, prepared, DCP_PUBLISH_ALWAYS, identity, visible);
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
                  .open = memory_open_directory,
                  .close = memory_close_directory,
                  .withdraw = memory_withdraw_directory,
                  .list = memory_list_directory,
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
                  .unmap = unmap_file,
                  .identify = identify,
                  .publish_over = publish_over},
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
