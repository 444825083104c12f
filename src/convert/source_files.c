/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/source_files.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

/* Files that stay open: enough for a read of every rank of most runs, and far below the limit of
 * descriptors. */
enum { OPEN_MAX_FILES = 128 };

/* Files of all ranks, far more than a run has: few bytes can name as many as they like. */
enum { FILES_MAX = 1 << 20 };

/* A file of which elements were read keeps some MiB of buffers: one for each thread is enough. */
enum { READ_MAX_FILES = 4 };

void source_files_init(struct source_files *files, struct arena *arena)
{
    *files = (struct source_files){.arena = arena};
    pthread_mutex_init(&files->mutex, NULL);
}

static void close_file(struct source_file *file)
{
    if (file->open)
        file->records = view_detach_records(file->open);
    dcp_checkpoint_close(file->open);
    file->open = NULL;
}

void source_files_free(struct source_files *files)
{
    for (size_t i = 0; i < files->count; i++)
        close_file(&files->files[i]);
    for (size_t i = 0; i < files->count; i++)
        view_records_free(files->files[i].records);
    memory_release(files->files);
    pthread_mutex_destroy(&files->mutex);
    *files = (struct source_files){0};
}

dcp_status source_files_add(struct source_files *files, const char *directory, const char *name,
                            size_t *file)
{
    size_t size = strlen(directory) + (name ? strlen(name) + 1 : 0) + 1;
    if (files->count == FILES_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "%s: a checkpoint of more than %d files",
                             directory, FILES_MAX);
    char *path = arena_allocate(files->arena, size);
    if (!path)
        return error_no_memory(size, "a path");
    snprintf(path, size, "%s%s%s", directory, name ? "/" : "", name ? name : "");
    if (files->count == files->capacity) {
        size_t capacity = files->capacity == 0 ? 16 : files->capacity * 2;
        struct source_file *grown = memory_reallocate_array(files->files, capacity, sizeof *grown);
        if (!grown)
            return error_no_memory(capacity * sizeof *grown, "files of a source");
        files->files = grown;
        files->capacity = capacity;
    }
    *file = files->count;
    files->files[files->count++] = (struct source_file){.path = path};
    return DCP_OK;
}

/* Closes the file that nobody uses and that was used the longest ago; read: of those that were
 * read. */
static void close_oldest(struct source_files *files, bool read)
{
    size_t *place = NULL; /* that says which is next, of the oldest */
    for (size_t *next = &files->first_open; *next > 0; next = &files->files[*next - 1].next_open) {
        const struct source_file *file = &files->files[*next - 1];
        if (file->users == 0 && (file->was_read || !read) &&
            (!place || file->used < files->files[*place - 1].used))
            place = next;
    }
    if (!place)
        return;
    struct source_file *oldest = &files->files[*place - 1];
    *place = oldest->next_open;
    close_file(oldest);
    files->open_count--;
    files->read_count -= oldest->was_read;
    oldest->was_read = false;
}

static void attach_records(struct source_file *file)
{
    if (file->records)
        view_attach_records(file->open, file->records);
    file->records = NULL;
    view_join_records(file->open);
}

static dcp_status open_file(struct source_files *files, struct source_file *file)
{
    const dcp_open_options options = {.local_parts = files->local_parts};
    if (files->open_count >= OPEN_MAX_FILES)
        close_oldest(files, false);
    dcp_status status = dcp_checkpoint_open(file->path, &options, &file->open);
    if (status != DCP_OK)
        return error_prefix(status, "%s", file->path);
    attach_records(file);
    file->next_open = files->first_open;
    files->first_open = (size_t)(file - files->files) + 1;
    files->open_count++;
    return DCP_OK;
}

dcp_status source_files_take(struct source_files *files, size_t file, dcp_checkpoint **checkpoint)
{
    struct source_file *taken = &files->files[file];
    pthread_mutex_lock(&files->mutex);
    dcp_status status = taken->open ? DCP_OK : open_file(files, taken);
    if (status == DCP_OK) {
        taken->users++;
        taken->used = ++files->clock;
    }
    *checkpoint = taken->open;
    pthread_mutex_unlock(&files->mutex);
    return status;
}

void source_files_give(struct source_files *files, size_t file)
{
    pthread_mutex_lock(&files->mutex);
    files->files[file].users--;
    pthread_mutex_unlock(&files->mutex);
}

void source_files_give_read(struct source_files *files, size_t file)
{
    struct source_file *given = &files->files[file];
    pthread_mutex_lock(&files->mutex);
    given->users--;
    files->read_count += !given->was_read;
    given->was_read = true;
    if (files->read_count > READ_MAX_FILES)
        close_oldest(files, true);
    pthread_mutex_unlock(&files->mutex);
}

dcp_status source_files_complete(struct source_files *files)
{
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < files->count && status == DCP_OK; i++) {
        dcp_checkpoint *checkpoint;
        if (!files->files[i].open && !files->files[i].records)
            continue;
        status = source_files_take(files, i, &checkpoint);
        if (status != DCP_OK)
            break;
        status = view_complete_records(checkpoint);
        if (status != DCP_OK)
            status = error_prefix(status, "%s", files->files[i].path);
        source_files_give_read(files, i);
    }
    return status;
}
