/* SPDX-License-Identifier: BSD-3-Clause */
#include <limits.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/path.h"
#include "storage/file_source.h"
#include "storage/open/model_files.h"
#include "storage/open/storage_place.h"

dcp_status place_no_memory(const char *path)
{
    return error_no_memory(strlen(path) + 1, "a path");
}

dcp_status place_parts(struct storage_place *place, const struct directory_name *names,
                       size_t count)
{
    const char **parts = arena_allocate_array(&place->arena, count, sizeof *parts);
    if (!parts)
        return error_no_memory(count * sizeof *parts, "names of metadata files");
    for (size_t i = 0; i < count; i++)
        parts[i] = names[i].name;
    place->parts = parts;
    place->part_count = count;
    return DCP_OK;
}

dcp_status place_file(struct storage_place *place, const char *path)
{
    const char *slash = strrchr(path, '/');
    struct directory_name name = {.name = slash ? slash + 1 : path};
    size_t length = strlen(name.name), suffix = strlen(".safetensors");
    bool safetensors = length > suffix && strcmp(name.name + length - suffix, ".safetensors") == 0;
    place->form = safetensors ? STORAGE_SAFETENSORS : STORAGE_PT;
    memory_release(place->id);
    place->id = memory_copy_text(slash ? path : ".");
    if (!place->id)
        return place_no_memory(path);
    if (slash)
        place->id[slash == path ? 1 : slash - path] = '\0';
    RETURN_IF_ERROR(storage_directory_open(&place->directory, place->storage, place->id, 0, NULL));
    name.name = arena_copy_text(&place->arena, name.name, length);
    return name.name ? place_parts(place, &name, 1) : place_no_memory(path);
}

dcp_status place_nothing(const struct storage_place *place, const char *path)
{
    size_t shards = directory_count(&place->listing, DIRECTORY_SHARD);
    if (shards > 0)
        return dcp_error_set(DCP_ERR_NOT_FOUND,
                             "%s: a save was interrupted here: %zu shard file%s, but no .metadata, "
                             "which dcp repair rebuilds if all of them are there",
                             path, shards, shards == 1 ? "" : "s");
    return dcp_error_set(DCP_ERR_NOT_FOUND,
                         "%s: no checkpoint: looked for .metadata, __*.metadata, *.safetensors, "
                         "pp0 and files of other frameworks",
                         path);
}

/* Stages of a pipeline, each saved by its own ranks. None below the highest may be missing. */
static dcp_status place_stages(struct storage_place *place)
{
    const struct directory *listing = &place->listing;
    const struct directory_name *stages = &listing->names[listing->first[DIRECTORY_STAGE]];
    size_t count = directory_count(listing, DIRECTORY_STAGE);
    if (count > STORAGE_MEMBERS_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "%s: %zu pipeline stages, at most %d can be read",
                             place->id, count, STORAGE_MEMBERS_MAX);
    for (size_t i = 0; i < count; i++)
        if ((size_t)stages[i].rank != i)
            return dcp_error_set(DCP_ERR_NOT_FOUND,
                                 "%s: there is %s, but no pp%zu: a pipeline stage is missing",
                                 place->id, stages[i].name, i);
    place->form = STORAGE_UNION;
    return place_parts(place, stages, count);
}

dcp_status place_find_file(const struct storage_directory *directory, const char *name, bool *found)
{
    struct file_source source;
    dcp_status status = file_source_open(&source, directory, name);
    *found = status == DCP_OK;
    if (status == DCP_OK)
        file_source_close(&source);
    return status == DCP_ERR_NOT_FOUND ? DCP_OK : status;
}

/* The files that the index names are the checkpoint, and no others. */
static dcp_status place_indexed(struct storage_place *place)
{
    struct buffer text;
    place->form = STORAGE_SAFETENSORS;
    place->index = arena_allocate(&place->arena, sizeof *place->index);
    if (!place->index)
        return error_no_memory(sizeof *place->index, "an index");
    buffer_init(&text, 0);
    dcp_status status = storage_read_whole(&place->directory, SAFETENSORS_INDEX_NAME,
                                           SAFETENSORS_INDEX_SIZE_MAX, &text);
    if (status == DCP_OK) {
        status = safetensors_index_read(text.data, text.size, &place->arena, place->index);
        if (status != DCP_OK)
            error_prefix(status, "%s", place->id);
    }
    buffer_free(&text);
    if (status == DCP_OK)
        status = model_files_check(place->id, &place->listing, place->index);
    place->parts = place->index->files;
    place->part_count = place->index->file_count;
    return status;
}

/* is_member: of a union, and no union itself. */
static dcp_status place_directory(struct storage_place *place, bool is_member)
{
    static const struct directory_name metadata = {.name = METADATA_NAME};
    bool found;
    RETURN_IF_ERROR(place_find_file(&place->directory, METADATA_NAME, &found));
    place->form = STORAGE_DCP;
    if (found)
        return place_parts(place, &metadata, 1);
    RETURN_IF_ERROR(directory_read(&place->directory, &place->listing));
    enum directory_kind kind = DIRECTORY_RANK_LOCAL;
    place->form = STORAGE_RANK_LOCAL;
    if (directory_count(&place->listing, kind) == 0 &&
        directory_count(&place->listing, DIRECTORY_INDEX) > 0)
        return place_indexed(place);
    if (directory_count(&place->listing, kind) == 0) {
        kind = DIRECTORY_SAFETENSORS;
        place->form = STORAGE_SAFETENSORS;
    }
    if (directory_count(&place->listing, kind) == 0) {
        bool shards = directory_count(&place->listing, DIRECTORY_SHARD) > 0;
        if (!is_member && !shards && directory_count(&place->listing, DIRECTORY_STAGE) > 0)
            return place_stages(place);
        return is_member || shards ? place_nothing(place, place->id) : place_foreign(place);
    }
    if (kind == DIRECTORY_SAFETENSORS)
        RETURN_IF_ERROR(model_files_check(place->id, &place->listing, NULL));
    return place_parts(place, &place->listing.names[place->listing.first[kind]],
                       directory_count(&place->listing, kind));
}

static dcp_status place_path(struct storage_place *place, const char *path)
{
    dcp_status status = storage_directory_open(&place->directory, place->storage, path, 0, NULL);
    if (status == DCP_ERR_KIND)
        return place_file(place, path);
    return status == DCP_OK ? place_directory(place, false) : status;
}

/* The members that the caller names. */
static dcp_status place_chosen(struct storage_location location, struct storage_place *place)
{
    size_t count = location.member_count;
    if (count > STORAGE_MEMBERS_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "a union of %zu directories, at most %d can be",
                             count, STORAGE_MEMBERS_MAX);
    const char **parts = arena_allocate_array(&place->arena, count, sizeof *parts);
    if (!parts)
        return place_no_memory(location.path);
    for (size_t i = 0; i < count; i++) {
        const char *name = location.members ? location.members[i] : NULL;
        if (!name || !*name)
            return dcp_error_set(DCP_ERR_ARGUMENT, "member %zu of a union has no name", i);
        parts[i] = arena_copy_text(&place->arena, name, strlen(name));
        if (!parts[i])
            return place_no_memory(name);
        for (size_t k = 0; k < i; k++)
            if (strcmp(parts[k], parts[i]) == 0)
                return dcp_error_set(DCP_ERR_ARGUMENT, "\"%s\" is twice a member of a union",
                                     parts[i]);
    }
    place->form = STORAGE_UNION;
    place->chosen = true;
    place->parts = parts;
    place->part_count = count;
    return DCP_OK;
}

static dcp_status place_begin(struct storage_place *place, const dcp_storage *storage, char *id)
{
    *place = (struct storage_place){.storage = storage, .id = id};
    arena_init(&place->arena, 0);
    return id ? DCP_OK : error_no_memory(PATH_MAX, "a path");
}

dcp_status storage_place_find(const dcp_storage *storage, struct storage_location location,
                              struct storage_place *place)
{
    dcp_status status = place_begin(place, storage, memory_copy_text(location.path));
    if (status == DCP_OK)
        status = location.member_count > 0 ? place_chosen(location, place)
                                           : place_path(place, location.path);
    if (status == DCP_OK && location.take != DCP_TAKE_MODEL && place->form == STORAGE_DCP)
        status = place_training_step(place);
    if (status == DCP_OK && location.take == DCP_TAKE_MASTERS && place->form != STORAGE_TRAINING)
        status =
            dcp_error_set(DCP_ERR_UNSUPPORTED,
                          "%s: only training checkpoints of other frameworks, in the file system, "
                          "have the optimizer's fp32 weights under the model's names "
                          "(DCP_TAKE_MASTERS)",
                          location.path);
    if (status != DCP_OK)
        storage_place_free(place);
    return status;
}

char *storage_member_id(const char *id, const char *name)
{
    return *name == '/' || strstr(name, "://") ? memory_copy_text(name) : path_join(id, name);
}

dcp_status storage_place_member(const dcp_storage *storage, const char *id, const char *name,
                                bool chosen, struct storage_place *place)
{
    dcp_status status = place_begin(place, storage, storage_member_id(id, name));
    if (status == DCP_OK)
        status = storage_directory_open(&place->directory, storage, place->id,
                                        chosen ? 0 : DCP_OPEN_NO_LINK, NULL);
    if (status == DCP_ERR_NOT_FOUND || status == DCP_ERR_KIND)
        status = dcp_error_set(DCP_ERR_NOT_FOUND, "%s: no such directory", place->id);
    if (status == DCP_OK)
        status = place_directory(place, true);
    if (status != DCP_OK)
        storage_place_free(place);
    return status;
}

void storage_place_free(struct storage_place *place)
{
    storage_directory_close(&place->directory);
    memory_release(place->id);
    directory_free(&place->listing);
    arena_free(&place->arena);
    *place = (struct storage_place){0};
}
