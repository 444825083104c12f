/* SPDX-License-Identifier: BSD-3-Clause */
/* What belongs to a checkpoint that is to be copied. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/name_table.h"
#include "dcp/checkpoint.h"
#include "run/run_copy.h"
#include "run/run_name.h"

/* Folders within folders, and bytes of metadata, at most. */
enum { DEPTH_MAX = 8 };
#define METADATA_LIMIT ((uint64_t)16 << 30)

#define COMMITTING ".metadata __%.metadata"
#define SHARDS     "__%_%.distcp __%_%.g%.distcp __%.g%.extra.*"
/* Marks of owners, and what is not finished. */
#define PASSING ".dcp_* *.tmp"

bool run_copy_is_shard(const char *name)
{
    return run_name_match_any(SHARDS, name);
}

const char *run_copy_split(const char *path, char folder[COPY_PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    snprintf(folder, COPY_PATH_MAX, "%.*s", slash ? (int)(slash - path) : 0, path);
    return slash ? slash + 1 : path;
}

/* ---- what the metadata of a folder names ---- */

static dcp_status take_name(struct name_table *named, const char *name)
{
    uint64_t value = 0;
    bool existing;
    return name_table_add(named, name, strlen(name), &value, &existing);
}

static dcp_status take_names(const dcp_checkpoint *checkpoint, struct name_table *named)
{
    for (size_t i = 0; i < dcp_checkpoint_count(checkpoint); i++) {
        dcp_entry entry;
        RETURN_IF_ERROR(dcp_checkpoint_entry(checkpoint, i, &entry));
        for (size_t c = 0; c < entry.chunk_count; c++) {
            dcp_stored_chunk chunk;
            RETURN_IF_ERROR(dcp_checkpoint_chunk(checkpoint, i, c, &chunk));
            RETURN_IF_ERROR(take_name(named, chunk.file));
        }
    }
    for (size_t i = 0; i < dcp_checkpoint_extra_file_count(checkpoint); i++) {
        dcp_extra_file_info info;
        RETURN_IF_ERROR(dcp_checkpoint_extra_file(checkpoint, i, &info));
        RETURN_IF_ERROR(take_name(named, info.file));
    }
    return DCP_OK;
}

static dcp_status read_named(const struct copying *copying, const char *folder,
                             dcp_checkpoint **checkpoint, struct name_table *named)
{
    const dcp_open_options options = {.storage = copying->from.storage};
    char *id = run_place_id(&copying->from, folder);
    if (!id)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = dcp_checkpoint_open(id, &options, checkpoint);
    memory_release(id);
    return status == DCP_OK ? take_names(*checkpoint, named) : status;
}

/* ---- files and folders ---- */

static dcp_status add_file(struct copying *copying, const char *path, uint64_t size, bool commits)
{
    if (strlen(path) >= COPY_PATH_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "%s/%.100s...: a path of %zu bytes is too long",
                             copying->from.root, path, strlen(path));
    if (copying->count == copying->capacity) {
        size_t capacity = copying->capacity ? 2 * copying->capacity : 64;
        struct copy_file *grown =
            memory_reallocate_array(copying->files, capacity, sizeof *copying->files);
        if (!grown)
            return error_no_memory(capacity * sizeof *grown, "files of a checkpoint");
        copying->files = grown;
        copying->capacity = capacity;
    }
    struct copy_file *file = &copying->files[copying->count];
    *file = (struct copy_file){.size = size, .commits = commits};
    file->path = arena_copy_text(&copying->arena, path, strlen(path));
    if (!file->path)
        return error_no_memory(strlen(path) + 1, "files of a checkpoint");
    buffer_init(&file->content, 0);
    copying->count++;
    return DCP_OK;
}

static dcp_status gather(struct copying *copying, const char *folder, int depth);

static dcp_status take_path(struct copying *copying, const char *path, bool commits, int depth)
{
    struct run_file file;
    struct saved_error error;
    struct run_names names;
    bool is_folder;
    dcp_status status = run_file_open_plain(&file, &copying->from, path);
    if (status == DCP_OK) {
        uint64_t size = file.file.size;
        run_file_close(&file);
        return add_file(copying, path, size, commits);
    }
    if (run_place_gives_up(status))
        return status;
    error_save(&error);
    status = run_place_list(&copying->from, path, &names, &is_folder);
    run_names_free(&names);
    if (status != DCP_OK)
        return status;
    return is_folder && depth < DEPTH_MAX ? gather(copying, path, depth + 1)
                                          : error_restore(&error);
}

static dcp_status take_all(struct copying *copying, const char *folder,
                           const struct run_names *names, const struct name_table *named, int depth)
{
    const struct run_place at = {.root = folder};
    bool has_metadata = run_names_has(names, ".metadata");
    for (size_t i = 0; i < names->count; i++) {
        const char *name = names->names[i];
        uint64_t value;
        if (run_name_match_any(PASSING, name) ||
            (has_metadata && run_copy_is_shard(name) &&
             !name_table_find(named, name, strlen(name), &value)))
            continue;
        char *path = *folder ? run_place_id(&at, name) : memory_copy_text(name);
        if (!path)
            return error_no_memory(strlen(name) + 1, "a path");
        dcp_status status = take_path(copying, path, run_name_match_any(COMMITTING, name), depth);
        memory_release(path);
        RETURN_IF_ERROR(status);
    }
    return DCP_OK;
}

static dcp_status gather(struct copying *copying, const char *folder, int depth)
{
    dcp_checkpoint *checkpoint = NULL;
    struct name_table named;
    struct run_names names;
    bool found;
    name_table_init(&named);
    dcp_status status = run_place_list(&copying->from, folder, &names, &found);
    if (status == DCP_OK && !found)
        status = names.status != DCP_OK ? names.status
                                        : dcp_error_set(DCP_ERR_NOT_FOUND, "%s: no such checkpoint",
                                                        copying->from.root);
    if (status == DCP_OK && run_names_has(&names, ".metadata"))
        status = read_named(copying, folder, &checkpoint, &named);
    if (status == DCP_OK)
        status = take_all(copying, folder, &names, &named, depth);
    name_table_free(&named);
    dcp_checkpoint_close(checkpoint);
    run_names_free(&names);
    return status;
}

/* ---- in order ---- */

static int depth_of(const char *path)
{
    int depth = 0;
    for (; *path; path++)
        depth += *path == '/';
    return depth;
}

/* Those that commit come last, and the checkpoint's own after those of its members. */
static int compare_files(const void *first, const void *second)
{
    const struct copy_file *a = first, *b = second;
    if (a->commits != b->commits)
        return a->commits ? 1 : -1;
    int a_depth = depth_of(a->path), b_depth = depth_of(b->path);
    if (a->commits && a_depth != b_depth)
        return a_depth < b_depth ? 1 : -1;
    return strcmp(a->path, b->path);
}

static dcp_status read_commits(struct copying *copying, size_t *commits)
{
    for (size_t i = 0; i < copying->count; i++) {
        struct copy_file *file = &copying->files[i];
        bool found;
        if (!file->commits)
            continue;
        ++*commits;
        RETURN_IF_ERROR(
            run_place_read(&copying->from, file->path, METADATA_LIMIT, &file->content, &found));
        if (!found)
            return dcp_error_set(DCP_ERR_BUSY, "%s/%s went while it was copied", copying->from.root,
                                 file->path);
        file->size = file->content.size;
    }
    return DCP_OK;
}

dcp_status run_copy_list(struct copying *copying)
{
    size_t commits = 0;
    RETURN_IF_ERROR(gather(copying, "", 0));
    RETURN_IF_ERROR(read_commits(copying, &commits));
    if (commits == 0)
        return dcp_error_set(DCP_ERR_NOT_FOUND, "%s is no checkpoint: it has no .metadata",
                             copying->from.root);
    qsort(copying->files, copying->count, sizeof *copying->files, compare_files);
    return DCP_OK;
}
