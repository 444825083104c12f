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
                         "%s: no checkpoint: looked for .metadata, __*.metadata, *.safetensors "
                         "and pp0",
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
                             place->directory, count, STORAGE_MEMBERS_MAX);
    for (size_t i = 0; i < count; i++)
        if ((size_t)stages[i].rank != i)
            return dcp_error_set(DCP_ERR_NOT_FOUND,
                                 "%s: there is %s, but no pp%zu: a pipeline stage is missing",
                                 place->directory, stages[i].name, i);
    place->form = STORAGE_UNION;
    return set_parts(place, stages, count);
}

/* is_member: what members cannot be is not looked for. */
static dcp_status place_directory(const struct file_ops *ops, const char *path, bool is_member,
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
    if (directory_count(&place->listing, kind) == 0 && !is_member) {
        kind = DIRECTORY_SAFETENSORS;
        place->form = STORAGE_SAFETENSORS;
    }
    if (directory_count(&place->listing, kind) == 0) {
        bool stages = !is_member && directory_count(&place->listing, DIRECTORY_SHARD) == 0 &&
                      directory_count(&place->listing, DIRECTORY_STAGE) > 0;
        return stages ? place_stages(place) : place_nothing(place, path);
    }
    return set_parts(place, &place->listing.names[place->listing.first[kind]],
                     directory_count(&place->listing, kind));
}

static dcp_status place_path(const struct file_ops *ops, const char *path,
                             struct storage_place *place)
{
    struct file_information information;
    dcp_status status = file_look(ops, path, &information);
    if (status == DCP_ERR_NOT_FOUND)
        return dcp_error_set(DCP_ERR_NOT_FOUND, "%s: no such file or directory", path);
    if (status != DCP_OK)
        return status;
    if (information.kind == FILE_DIRECTORY)
        return place_directory(ops, path, false, place);
    if (information.kind == FILE_REGULAR)
        return place_file(place, path);
    return dcp_error_set(DCP_ERR_FORMAT, "%s is neither a directory nor a regular file", path);
}

/* The members that the caller names. */
static dcp_status place_chosen(struct storage_location location, struct storage_place *place)
{
    size_t count = location.member_count;
    if (count > STORAGE_MEMBERS_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "a union of %zu directories, at most %d can be",
                             count, STORAGE_MEMBERS_MAX);
    const char **parts = arena_allocate_array(&place->arena, count, sizeof *parts);
    place->directory = memory_copy_text(location.path);
    if (!parts || !place->directory)
        return no_memory_for(location.path);
    for (size_t i = 0; i < count; i++) {
        const char *name = location.members ? location.members[i] : NULL;
        if (!name || !*name)
            return dcp_error_set(DCP_ERR_ARGUMENT, "member %zu of a union has no name", i);
        parts[i] = arena_copy_text(&place->arena, name, strlen(name));
        if (!parts[i])
            return no_memory_for(name);
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

dcp_status storage_place_find(const struct file_ops *ops, struct storage_location location,
                              struct storage_place *place)
{
    *place = (struct storage_place){0};
    arena_init(&place->arena, 0);
    dcp_status status = location.member_count > 0 ? place_chosen(location, place)
                                                  : place_path(ops, location.path, place);
    if (status != DCP_OK)
        storage_place_free(place);
    return status;
}

dcp_status storage_place_member(const struct file_ops *ops, const char *directory, const char *name,
                                bool chosen, struct storage_place *place)
{
    struct file_information information;
    *place = (struct storage_place){0};
    arena_init(&place->arena, 0);
    char *path = *name == '/' ? memory_copy_text(name) : file_path_join(directory, name);
    if (!path)
        return no_memory_for(name);
    dcp_status status = file_look(ops, path, &information);
    if (status == DCP_ERR_NOT_FOUND || (status == DCP_OK && information.kind != FILE_DIRECTORY))
        status = dcp_error_set(DCP_ERR_NOT_FOUND, "%s: no such directory", path);
    if (status == DCP_OK && !chosen)
        status = directory_check(ops, path);
    if (status == DCP_OK)
        status = place_directory(ops, path, true, place);
    memory_release(path);
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
