/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/memory/memory_files.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"

struct memory_directory *memory_find_directory(const struct memory_storage *storage, const char *id)
{
    struct memory_directory *directory = storage->directories;
    while (directory && strcmp(directory->id, id) != 0)
        directory = directory->next;
    return directory;
}

/* Whether an id is another one, a slash, and the first bytes of a name. */
static bool is_below(const char *id, const char *above, const char *name, size_t length)
{
    size_t start = strlen(above);
    return strncmp(id, above, start) == 0 && id[start] == '/' &&
           strncmp(id + start + 1, name, length) == 0 && id[start + 1 + length] == '\0';
}

struct memory_directory *memory_find_holder(const struct memory_storage *storage,
                                            struct memory_directory *directory, const char **name)
{
    const char *slash = strrchr(*name, '/');
    if (!slash)
        return directory;
    struct memory_directory *holder = storage->directories;
    while (holder && !is_below(holder->id, directory->id, *name, (size_t)(slash - *name)))
        holder = holder->next;
    *name = holder ? slash + 1 : *name;
    return holder;
}

struct memory_file *memory_find_file(const struct memory_directory *directory, const char *name)
{
    struct memory_file *file = directory->files;
    while (file && strcmp(file->name, name) != 0)
        file = file->next;
    return file;
}

/* Stored files are not charged to the save: no memory limit counts them. */
struct memory_file *memory_file_new(const char *name, size_t capacity)
{
    size_t length = strlen(name) + 1;
    struct memory_file *file = memory_allocate_unpaid(sizeof *file);
    char *copy = memory_allocate_unpaid(length);
    unsigned char *bytes = memory_allocate_unpaid(capacity);
    if (!file || !copy || !bytes) {
        memory_release(file);
        memory_release(copy);
        memory_release(bytes);
        return NULL;
    }
    memcpy(copy, name, length);
    *file = (struct memory_file){.name = copy, .bytes = bytes, .capacity = capacity, .users = 1};
    pthread_rwlock_init(&file->lock, NULL);
    return file;
}

void memory_file_release(struct memory_file *file)
{
    if (--file->users > 0)
        return;
    pthread_rwlock_destroy(&file->lock);
    memory_release(file->name);
    memory_release(file->bytes);
    memory_release(file);
}

void memory_file_unlink(struct memory_file *file)
{
    struct memory_file **place = &file->directory->files;
    while (*place != file)
        place = &(*place)->next;
    *place = file->next;
    memory_file_release(file);
}

/* Holes read as zeros. */
static bool grow(struct memory_file *file, size_t size)
{
    size_t capacity = file->capacity > SIZE_MAX / 2 ? SIZE_MAX : file->capacity * 2;
    if (capacity < size)
        capacity = size;
    unsigned char *bytes = memory_allocate_unpaid(capacity);
    if (!bytes)
        return false;
    memcpy(bytes, file->bytes, file->capacity);
    memset(bytes + file->capacity, 0, capacity - file->capacity);
    memory_release(file->bytes);
    file->bytes = bytes;
    file->capacity = capacity;
    return true;
}

dcp_status memory_file_reserve(struct memory_file *file, size_t size)
{
    pthread_rwlock_wrlock(&file->lock);
    bool fits = size <= file->capacity || grow(file, size);
    pthread_rwlock_unlock(&file->lock);
    return fits ? DCP_OK : error_no_memory(size, file->name);
}
