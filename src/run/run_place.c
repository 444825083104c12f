/* SPDX-License-Identifier: BSD-3-Clause */
/* Folders and files of a run. */
#include "run/run_place.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/path.h"

void run_place_init(struct run_place *place, const dcp_storage *storage, const char *root)
{
    bool taken = storage && (!storage->takes || storage->takes(storage->context, root));
    *place = (struct run_place){storage, taken ? storage : dcp_storage_files(), root};
}

bool run_place_gives_up(dcp_status status)
{
    return status == DCP_ERR_NO_MEMORY || status == DCP_ERR_FILE_LIMIT;
}

char *run_place_id(const struct run_place *place, const char *path)
{
    char *id = *path ? path_join(place->root, path) : memory_copy_text(place->root);
    if (!id)
        error_no_memory(strlen(place->root) + strlen(path) + 2, "a path");
    return id;
}

/* ---- folders ---- */

static dcp_status take_name(void *context, const char *name)
{
    struct run_names *names = context;
    if (names->count == names->capacity) {
        size_t capacity = names->capacity ? 2 * names->capacity : 64;
        const char **grown = memory_reallocate_array(names->names, capacity, sizeof *grown);
        if (!grown)
            return error_no_memory(capacity * sizeof *grown, "names of a directory");
        names->names = grown;
        names->capacity = capacity;
    }
    char *copy = arena_copy_text(&names->arena, name, strlen(name));
    if (!copy)
        return error_no_memory(strlen(name) + 1, "names of a directory");
    names->names[names->count++] = copy;
    return DCP_OK;
}

dcp_status run_place_list(const struct run_place *place, const char *path, struct run_names *names,
                          bool *found)
{
    *names = (struct run_names){0};
    arena_init(&names->arena, 0);
    *found = false;
    char *id = run_place_id(place, path);
    if (!id)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = dcp_storage_list(place->storage, id, take_name, names);
    memory_release(id);
    names->status = status;
    *found = status == DCP_OK && (names->count > 0 || place->table == dcp_storage_files());
    return run_place_gives_up(status) ? status : DCP_OK;
}

void run_names_free(struct run_names *names)
{
    memory_release(names->names);
    arena_free(&names->arena);
    *names = (struct run_names){0};
}

static int compare_name(const void *key, const void *element)
{
    return strcmp(key, *(const char *const *)element);
}

bool run_names_has(const struct run_names *names, const char *name)
{
    return names->count > 0 &&
           bsearch(name, names->names, names->count, sizeof *names->names, compare_name);
}

/* ---- files ---- */

/* A trusted name: links to files are followed, as frameworks do. */
static dcp_status open_in(struct run_file *file, const char *name, bool trusted)
{
    const dcp_storage *table = file->place->table;
    const dcp_storage_access access = {.size_of = sizeof access, .trusted = trusted};
    RETURN_IF_ERROR(run_place_open(file->place, file->id, 0, &file->directory));
    dcp_status status =
        error_checked(table->open_file(table->context, file->directory, name, &access, &file->file),
                      "the storage's open_file");
    if (status != DCP_OK)
        run_place_close(file->place, file->directory);
    return status;
}

static dcp_status open_file(struct run_file *file, const struct run_place *place, const char *path,
                            bool trusted)
{
    *file = (struct run_file){.place = place};
    const char *slash = strrchr(path, '/');
    file->id = run_place_id(place, slash ? path : "");
    if (!file->id)
        return DCP_ERR_NO_MEMORY;
    if (slash)
        *strrchr(file->id, '/') = '\0';
    dcp_status status = open_in(file, slash ? slash + 1 : path, trusted);
    if (status != DCP_OK)
        memory_release(file->id);
    return status;
}

dcp_status run_file_open(struct run_file *file, const struct run_place *place, const char *path)
{
    return open_file(file, place, path, true);
}

dcp_status run_file_open_plain(struct run_file *file, const struct run_place *place,
                               const char *path)
{
    return open_file(file, place, path, false);
}

dcp_status run_file_read(struct run_file *file, void *bytes, size_t size, uint64_t offset)
{
    const dcp_storage *table = file->place->table;
    uint64_t whole = file->file.size;
    if (offset > whole || size > whole - offset)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "the file has %" PRIu64 " bytes, expected %zu at offset %" PRIu64,
                             whole, size, offset);
    if (size == 0)
        return DCP_OK;
    error_clear();
    return error_checked(table->read(table->context, &file->file, bytes, size, offset),
                         "the storage's read");
}

void run_file_close(struct run_file *file)
{
    const dcp_storage *table = file->place->table;
    struct saved_error error;
    error_save(&error);
    table->close_file(table->context, &file->file);
    run_place_close(file->place, file->directory);
    memory_release(file->id);
    error_restore(&error);
}

static dcp_status size_of(const struct run_place *place, const char *path, bool trusted,
                          uint64_t *size, bool *found)
{
    struct run_file file;
    dcp_status status = open_file(&file, place, path, trusted);
    *found = status == DCP_OK;
    *size = 0;
    if (status != DCP_OK)
        return run_place_gives_up(status) ? status : DCP_OK;
    *size = file.file.size;
    run_file_close(&file);
    return DCP_OK;
}

dcp_status run_place_size(const struct run_place *place, const char *path, uint64_t *size,
                          bool *found)
{
    return size_of(place, path, true, size, found);
}

dcp_status run_place_size_plain(const struct run_place *place, const char *path, uint64_t *size,
                                bool *found)
{
    return size_of(place, path, false, size, found);
}

dcp_status run_place_read(const struct run_place *place, const char *path, uint64_t limit,
                          struct buffer *bytes, bool *found)
{
    struct run_file file;
    dcp_status status = run_file_open(&file, place, path);
    buffer_clear(bytes);
    *found = false;
    if (status != DCP_OK)
        return run_place_gives_up(status) ? status : DCP_OK;
    if (file.file.size <= limit) {
        status = buffer_reserve(bytes, (size_t)file.file.size);
        if (status == DCP_OK)
            status = run_file_read(&file, bytes->data, (size_t)file.file.size, 0);
        *found = status == DCP_OK;
        bytes->size = *found ? (size_t)file.file.size : 0;
    }
    run_file_close(&file);
    return run_place_gives_up(status) ? status : DCP_OK;
}

/* ---- what the table does not have ---- */

/* lstat() or stat() of a path of the file system; false elsewhere. */
static bool look(const struct run_place *place, const char *path, bool follow, struct stat *status)
{
    char id[RUN_LINK_MAX];
    size_t root = strlen(place->root), length = strlen(path);
    if (place->table != dcp_storage_files() || root + 1 + length >= sizeof id)
        return false;
    memcpy(id, place->root, root);
    id[root] = '/';
    memcpy(id + root + 1, path, length + 1);
    return (follow ? stat(id, status) : lstat(id, status)) == 0;
}

bool run_place_is_link(const struct run_place *place, const char *path, char text[RUN_LINK_MAX])
{
    struct stat status;
    text[0] = '\0';
    if (!look(place, path, false, &status) || !S_ISLNK(status.st_mode))
        return false;
    char id[RUN_LINK_MAX];
    size_t root = strlen(place->root);
    memcpy(id, place->root, root); /* fits: look() has seen it */
    id[root] = '/';
    memcpy(id + root + 1, path, strlen(path) + 1);
    ssize_t length = readlink(id, text, RUN_LINK_MAX - 1);
    text[length > 0 ? length : 0] = '\0';
    return true;
}

bool run_place_is_same(const struct run_place *place, const char *path, const char *other)
{
    struct stat first, second;
    return look(place, path, true, &first) && look(place, other, true, &second) &&
           first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

int64_t run_place_time(const struct run_place *place, const char *path)
{
    struct stat status;
    return look(place, path, true, &status) && status.st_mtime > 0 ? (int64_t)status.st_mtime : 0;
}
