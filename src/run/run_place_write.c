/* SPDX-License-Identifier: BSD-3-Clause */
/* Small files and marks of a run, over the table of its storage. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "run/run_place.h"

enum { ABSOLUTE_ROOM = 2 * PATH_MAX };

/* ---- directories ---- */

dcp_status run_place_open(const struct run_place *place, char *id, uint32_t flags, void **directory)
{
    const dcp_storage *table = place->table;
    bool created;
    *directory = id; /* the handle where the storage opens none */
    if (!table->open)
        return DCP_OK;
    error_clear();
    return error_checked(table->open(table->context, id, flags, directory, &created),
                         "the storage's open");
}

void run_place_close(const struct run_place *place, void *directory)
{
    struct saved_error error;
    error_save(&error);
    if (place->table->open)
        place->table->close(place->table->context, directory);
    error_restore(&error);
}

/* At the end of an id, but for those of "/" and "scheme://". */
static void cut_slashes(char *id)
{
    size_t length = strlen(id);
    while (length > 1 && id[length - 1] == '/' &&
           (length < 3 || strncmp(id + length - 3, "://", 3) != 0))
        length--;
    id[length] = '\0';
}

char *run_place_absolute(const struct run_place *place)
{
    const dcp_storage *table = place->table;
    char *text = memory_allocate(ABSOLUTE_ROOM + strlen(place->root));
    dcp_status status = DCP_OK;
    if (!text) {
        error_no_memory(ABSOLUTE_ROOM, "a path");
        return NULL;
    }
    memcpy(text, place->root, strlen(place->root) + 1);
    error_clear();
    if (table->absolute)
        status = error_checked(
            table->absolute(table->context, place->root, text, ABSOLUTE_ROOM + strlen(place->root)),
            "the storage's absolute");
    if (status != DCP_OK) {
        memory_release(text);
        return NULL;
    }
    cut_slashes(text);
    return text;
}

dcp_status run_place_make(const struct run_place *place)
{
    void *directory;
    char *id = run_place_id(place, "");
    if (!id)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = run_place_open(place, id, DCP_OPEN_CREATE | DCP_OPEN_DURABLE, &directory);
    if (status == DCP_OK)
        run_place_close(place, directory);
    memory_release(id);
    return status;
}

void run_place_remove_folder(const struct run_place *place, const char *folder)
{
    struct saved_error error;
    void *directory;
    error_save(&error);
    char *id = run_place_id(place, folder);
    if (id && place->table->remove_directory &&
        run_place_open(place, id, DCP_OPEN_NO_LINK, &directory) == DCP_OK) {
        place->table->remove_directory(place->table->context, directory);
        run_place_close(place, directory);
    }
    memory_release(id);
    error_restore(&error);
}

/* ---- small files ---- */

static dcp_status create_and_seal(const dcp_storage *table, void *directory, const char *name,
                                  const void *bytes, size_t size, dcp_storage_condition condition)
{
    const dcp_storage_access access = {
        .size_of = sizeof access, .durable = true, .size = size, .published = true};
    dcp_storage_file file;
    RETURN_IF_ERROR(error_checked(table->create(table->context, directory, name, &access, &file),
                                  "the storage's create"));
    dcp_status status = size == 0
                            ? DCP_OK
                            : error_checked(table->write(table->context, &file, bytes, size, 0),
                                            "the storage's write");
    if (status == DCP_OK)
        return error_checked(table->seal(table->context, &file, size, condition, NULL),
                             "the storage's seal");
    (table->abandon ? table->abandon : table->close_file)(table->context, &file);
    return status;
}

static dcp_status publish_in(const dcp_storage *table, void *directory, const char *name,
                             const void *bytes, size_t size, dcp_storage_condition condition)
{
    void *publication;
    bool visible = false;
    error_clear();
    if (!table->prepare)
        return create_and_seal(table, directory, name, bytes, size, condition);
    const dcp_storage_access access = {
        .size_of = sizeof access, .size = size, .durable = true, .published = true};
    RETURN_IF_ERROR(error_checked(
        table->prepare(table->context, directory, name, bytes, size, &access, &publication),
        "the storage's prepare"));
    error_clear();
    return error_checked(table->publish(table->context, publication, condition, &visible),
                         "the storage's publish");
}

dcp_status run_place_publish(const struct run_place *place, const char *folder, const char *name,
                             const void *bytes, size_t size, dcp_storage_condition condition)
{
    const dcp_storage *table = place->table;
    void *directory;
    char *id = run_place_id(place, folder);
    if (!id)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = run_place_open(place, id, DCP_OPEN_CREATE | DCP_OPEN_DURABLE, &directory);
    if (status == DCP_OK) {
        status = publish_in(table, directory, name, bytes, size, condition);
        if (status == DCP_OK && table->sync)
            status = error_checked(table->sync(table->context, directory), "the storage's sync");
        run_place_close(place, directory);
    }
    memory_release(id);
    return status;
}

dcp_status run_place_remove(const struct run_place *place, const char *folder, const char *name)
{
    char *id = run_place_id(place, folder);
    dcp_status status = id ? dcp_storage_remove(place->storage, id, name) : DCP_ERR_NO_MEMORY;
    memory_release(id);
    return status;
}

/* ---- marks ---- */

static dcp_status mark_failed(const char *what, const struct run_place *place, const char *name)
{
    return dcp_error_set(DCP_ERR_IO, "%s/%s: the mark could not be %s: %s", place->root, name, what,
                         strerror(errno));
}

/* A link under another name, which then takes the name. What a crash has left of it is replaced. */
static dcp_status link_in(int folder, const struct run_place *place, const char *name,
                          const char *target)
{
    char temporary[300];
    snprintf(temporary, sizeof temporary, ".dcp_mark.%.200s", name);
    if (unlinkat(folder, temporary, 0) != 0 && errno != ENOENT)
        return mark_failed("made", place, name);
    if (symlinkat(target, folder, temporary) != 0)
        return mark_failed("made", place, name);
    if (renameat(folder, temporary, folder, name) != 0) {
        dcp_status status = mark_failed("moved", place, name);
        unlinkat(folder, temporary, 0);
        return status;
    }
    return fsync(folder) == 0 ? DCP_OK : mark_failed("made durable", place, name);
}

dcp_status run_place_mark(const struct run_place *place, const char *name, const char *target)
{
    if (place->table != dcp_storage_files())
        return run_place_publish(place, "", name, target, strlen(target), DCP_PUBLISH_ALWAYS);
    int folder = open(place->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return mark_failed("moved", place, name);
    dcp_status status = link_in(folder, place, name, target);
    close(folder);
    return status;
}
