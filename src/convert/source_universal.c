/* SPDX-License-Identifier: BSD-3-Clause */
/* DeepSpeed's universal checkpoints: a directory zero/NAME for each parameter, with a file for each
 * kind of its data. Only parameters of param_shapes are taken from there: what is there of buffers
 * and tied names is not what was trained. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "convert/source_deepspeed.h"

/* The one tensor of a file: under "param", or by itself. */
static dcp_status find_tensor(dcp_checkpoint *checkpoint, size_t *index, dcp_entry *entry)
{
    if (!source_entry_find(checkpoint, "param", index) && !source_entry_find(checkpoint, "", index))
        return dcp_error_set(DCP_ERR_FORMAT,
                             "has neither \"param\" nor a tensor that is not in a dict");
    return dcp_checkpoint_entry(checkpoint, *index, entry);
}

/* Adds zero/NAME/KEY.pt as a file. */
static dcp_status add_file(struct deepspeed *from, const struct deepspeed_param *param,
                           const char *key, size_t *file)
{
    size_t size = strlen("zero/") + strlen(param->name) + strlen(key) + sizeof "/.pt";
    char *name = memory_allocate(size);
    if (!name)
        return error_no_memory(size, "a path");
    snprintf(name, size, "zero/%s/%s.pt", param->name, key);
    dcp_status status = source_files_add(&from->parts->files, from->source->training, name, file);
    memory_release(name);
    return status;
}

/* All elements of a parameter, shaped or flat, from a file of its own. */
static dcp_status add_elements(struct deepspeed *from, const struct deepspeed_param *param,
                               size_t file)
{
    char found[128], expected[128];
    dcp_checkpoint *checkpoint;
    int64_t elements = -1;
    dcp_entry entry;
    size_t index;
    RETURN_IF_ERROR(source_files_take(&from->parts->files, file, &checkpoint));
    dcp_status status = find_tensor(checkpoint, &index, &entry);
    if (status == DCP_OK && entry.is_tensor)
        shape_volume(entry.ndim, entry.global_shape, &elements);
    bool shaped =
        status == DCP_OK && entry.is_tensor && entry.ndim == param->ndim &&
        memcmp(entry.global_shape, param->shape, (size_t)param->ndim * sizeof *param->shape) == 0;
    if (status == DCP_OK &&
        !(elements == param->elements && (shaped || (entry.is_tensor && entry.ndim == 1))))
        status = dcp_error_set(
            DCP_ERR_SHAPE, "\"%s\" has shape %s, expected %s, or that many elements in a row",
            entry.name,
            entry.is_tensor ? shape_format(entry.ndim, entry.global_shape, found, sizeof found)
                            : "of no tensor",
            shape_format(param->ndim, param->shape, expected, sizeof expected));
    source_files_give(&from->parts->files, file);
    if (status != DCP_OK)
        return error_prefix(status, "%s", from->parts->files.files[file].path);
    return source_parts_add(from->parts, file, index, 0, elements);
}

static dcp_status add_master(struct deepspeed *from, const struct deepspeed_param *param)
{
    size_t file;
    RETURN_IF_ERROR(add_file(from, param, "fp32", &file));
    return add_elements(from, param, file);
}

/* One kind of a parameter's state. */
static dcp_status add_kind(struct deepspeed *from, const struct deepspeed_param *param,
                           const char *key)
{
    dcp_path_part path[3];
    dcp_checkpoint *checkpoint;
    dcp_entry entry;
    size_t file, index = 0;
    RETURN_IF_ERROR(add_file(from, param, key, &file));
    RETURN_IF_ERROR(source_files_take(&from->parts->files, file, &checkpoint));
    dcp_status status = find_tensor(checkpoint, &index, &entry);
    source_files_give(&from->parts->files, file);
    if (status != DCP_OK)
        return error_prefix(status, "%s", from->parts->files.files[file].path);
    deepspeed_path(param, key, path);
    if (!entry.is_tensor || entry.ndim == 0) /* the step */
        return source_parts_copy(from->parts, path, 3, file, index, DCP_DTYPE_NONE);
    RETURN_IF_ERROR(
        source_parts_tensor(from->parts, path, 3, entry.dtype, param->ndim, param->shape));
    RETURN_IF_ERROR(add_elements(from, param, file));
    return source_parts_end(from->parts);
}

/* What the files of a parameter are named, without ".pt". */
struct kinds {
    char (*names)[256];
    size_t count, capacity;
};

static int compare_kinds(const void *one, const void *other)
{
    return strcmp(one, other);
}

static dcp_status take_kind(struct kinds *kinds, const char *name)
{
    size_t length = strlen(name);
    if (length < 4 || length >= sizeof *kinds->names || strcmp(name + length - 3, ".pt") != 0 ||
        strcmp(name, "fp32.pt") == 0)
        return DCP_OK;
    if (kinds->count == kinds->capacity) {
        size_t capacity = kinds->capacity == 0 ? 8 : kinds->capacity * 2;
        void *grown = memory_reallocate_array(kinds->names, capacity, sizeof *kinds->names);
        if (!grown)
            return error_no_memory(capacity * sizeof *kinds->names, "names of files");
        kinds->names = grown;
        kinds->capacity = capacity;
    }
    memcpy(kinds->names[kinds->count], name, length - 3);
    kinds->names[kinds->count++][length - 3] = '\0';
    return DCP_OK;
}

/* Sorted: all ranks of a load must see the names in one order. */
static dcp_status list_kinds(const char *path, struct kinds *kinds)
{
    DIR *directory = opendir(path);
    if (!directory)
        return dcp_error_set(DCP_ERR_NOT_FOUND, "%s: cannot be listed: %s", path, strerror(errno));
    dcp_status status = DCP_OK;
    for (struct dirent *entry; status == DCP_OK && (entry = readdir(directory)) != NULL;)
        status = take_kind(kinds, entry->d_name);
    closedir(directory);
    if (kinds->count > 1)
        qsort(kinds->names, kinds->count, sizeof *kinds->names, compare_kinds);
    return status;
}

static dcp_status add_state(struct deepspeed *from, const struct deepspeed_param *param)
{
    size_t size = strlen(from->source->training) + strlen(param->name) + sizeof "/zero/";
    char *path = memory_allocate(size);
    struct kinds kinds = {0};
    if (!path)
        return error_no_memory(size, "a path");
    snprintf(path, size, "%s/zero/%s", from->source->training, param->name);
    dcp_status status = list_kinds(path, &kinds);
    for (size_t i = 0; i < kinds.count && status == DCP_OK; i++)
        status = add_kind(from, param, kinds.names[i]);
    memory_release(kinds.names);
    memory_release(path);
    return status;
}

/* Learning rates and so on; of ZeRO-3, whose parameters have no files of their steps, those, too.
 */
static dcp_status add_rest(struct deepspeed *from)
{
    dcp_checkpoint *checkpoint;
    size_t file;
    RETURN_IF_ERROR(source_files_add(&from->parts->files, from->source->training,
                                     "zero/optimizer_state.pt", &file));
    RETURN_IF_ERROR(source_files_take(&from->parts->files, file, &checkpoint));
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < dcp_checkpoint_count(checkpoint) && status == DCP_OK; i++) {
        dcp_path_part path[16] = {{.key = "optim"}};
        dcp_entry entry;
        status = dcp_checkpoint_entry(checkpoint, i, &entry);
        if (status != DCP_OK || entry.path_length > 15 ||
            !source_entry_is_below(&entry, "param_groups"))
            continue;
        memcpy(&path[1], entry.path, entry.path_length * sizeof *path);
        status =
            source_parts_copy(from->parts, path, entry.path_length + 1, file, i, DCP_DTYPE_NONE);
    }
    for (size_t i = 0; i < from->param_count && status == DCP_OK; i++) {
        dcp_path_part path[3];
        char name[64];
        size_t index;
        snprintf(name, sizeof name, "optimizer_state_dict.state.%zu.step", from->params[i].group);
        if (from->params[i].frozen || !source_entry_find(checkpoint, name, &index))
            continue;
        deepspeed_path(&from->params[i], "step", path);
        status = source_parts_copy(from->parts, path, 3, file, index, DCP_DTYPE_NONE);
    }
    source_files_give(&from->parts->files, file);
    return status;
}

static const struct deepspeed_stage stage = {add_master, add_state, add_rest};

/* A name is part of a path. */
static dcp_status check_names(const struct deepspeed *from)
{
    for (size_t i = 0; i < from->param_count; i++) {
        const char *name = from->params[i].name;
        if (*name == '\0' || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            return dcp_error_set(DCP_ERR_FORMAT,
                                 "%s: \"%s\" in param_shapes cannot be the name of a directory",
                                 from->source->training, name);
    }
    return DCP_OK;
}

dcp_status universal_open(struct convert_source *source)
{
    struct deepspeed from;
    dcp_status status = deepspeed_begin(&from, source);
    from.stage = &stage;
    if (status == DCP_OK)
        status = check_names(&from);
    if (status == DCP_OK)
        status = deepspeed_describe(&from);
    deepspeed_end(&from);
    return status;
}
