/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "storage/storage_open.h"

static dcp_status no_memory_for(const char *path)
{
    return error_no_memory(strlen(path) + 1, "a path");
}

static dcp_status set_parts(struct storage_place *place, const struct directory_name *names,
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

/* One file: the directory that it is in, and its name. */
static dcp_status place_file(struct storage_place *place, const char *path)
{
    const char *slash = strrchr(path, '/');
    struct directory_name name = {.name = slash ? slash + 1 : path};
    size_t length = strlen(name.name), suffix = strlen(".safetensors");
    bool safetensors = length > suffix && strcmp(name.name + length - suffix, ".safetensors") == 0;
    place->form = safetensors ? STORAGE_SAFETENSORS : STORAGE_PT;
    place->directory = memory_copy_text(slash ? path : ".");
    if (!place->directory)
        return no_memory_for(path);
    if (slash)
        place->directory[slash == path ? 1 : slash - path] = '\0';
    name.name = arena_copy_text(&place->arena, name.name, length);
    return name.name ? set_parts(place, &name, 1) : no_memory_for(path);
}

static dcp_status place_nothing(const struct storage_place *place, const char *path)
{
    size_t shards = directory_count(&place->listing, DIRECTORY_SHARD);
    if (shards > 0)
        return dcp_error_set(DCP_ERR_NOT_FOUND,
                             "%s: a save was interrupted here: %zu shard file%s, but no .metadata",
                             path, shards, shards == 1 ? "" : "s");
    return dcp_error_set(DCP_ERR_NOT_FOUND,
                         "%s: no checkpoint: looked for .metadata, __*.metadata and *.safetensors",
                         path);
}

static dcp_status place_directory(const struct file_ops *ops, const char *path,
                                  struct storage_place *place)
{
    static const struct directory_name metadata = {.name = METADATA_NAME};
    struct file_information information;
    place->directory = memory_copy_text(path);
    char *file = file_path_join(path, METADATA_NAME);
    if (!place->directory || !file) {
        memory_release(file);
        return no_memory_for(path);
    }
    dcp_status status = file_look(ops, file, &information);
    memory_release(file);
    place->form = STORAGE_DCP;
    if (status == DCP_OK)
        return set_parts(place, &metadata, 1);
    if (status != DCP_ERR_NOT_FOUND)
        return status;
    RETURN_IF_ERROR(directory_read(ops, path, &place->listing));
    enum directory_kind kind = DIRECTORY_RANK_LOCAL;
    place->form = STORAGE_RANK_LOCAL;
    if (directory_count(&place->listing, kind) == 0) {
        kind = DIRECTORY_SAFETENSORS;
        place->form = STORAGE_SAFETENSORS;
    }
    if (directory_count(&place->listing, kind) == 0)
        return place_nothing(place, path);
    return set_parts(place, &place->listing.names[place->listing.first[kind]],
                     directory_count(&place->listing, kind));
}

dcp_status storage_place_find(const struct file_ops *ops, const char *path,
                              struct storage_place *place)
{
    struct file_information information;
    *place = (struct storage_place){0};
    arena_init(&place->arena, 0);
    dcp_status status = file_look(ops, path, &information);
    if (status == DCP_ERR_NOT_FOUND)
        status = dcp_error_set(DCP_ERR_NOT_FOUND, "%s: no such file or directory", path);
    else if (status == DCP_OK && information.kind == FILE_DIRECTORY)
        status = place_directory(ops, path, place);
    else if (status == DCP_OK && information.kind == FILE_REGULAR)
        status = place_file(place, path);
    else if (status == DCP_OK)
        status =
            dcp_error_set(DCP_ERR_FORMAT, "%s is neither a directory nor a regular file", path);
    if (status != DCP_OK)
        storage_place_free(place);
    return status;
}

void storage_place_free(struct storage_place *place)
{
    memory_release(place->directory);
    directory_free(&place->listing);
    arena_free(&place->arena);
    *place = (struct storage_place){0};
}
