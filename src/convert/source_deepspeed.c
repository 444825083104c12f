/* SPDX-License-Identifier: BSD-3-Clause */
/* What is taken of a DeepSpeed checkpoint. */
#include "convert/source_deepspeed.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

static const char module_key[] = "module";
static const char optimizer_key[] = "optimizer";

void deepspeed_path(const struct deepspeed_param *param, const char *key, dcp_path_part path[3])
{
    path[0] = (dcp_path_part){.key = "optim"};
    path[1] = (dcp_path_part){.key = param->name};
    path[2] = (dcp_path_part){.key = key};
}

/* The parameter that has the elements of a name, which may be tied to it. NULL: it is a buffer. */
static dcp_status find_param(const struct deepspeed *from, const char *name,
                             const struct deepspeed_param **param)
{
    uint64_t index;
    const char *holder = name;
    *param = NULL;
    if (name_table_find(&from->tied, name, strlen(name), &index))
        holder = from->holders[index];
    if (name_table_find(&from->by_name, holder, strlen(holder), &index))
        *param = &from->params[index];
    else if (holder != name && from->is_cut)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "%s: \"%s\" is tied to \"%s\", whose shape is in no file",
                             from->source->training, name, holder);
    return DCP_OK;
}

int64_t deepspeed_piece(const struct deepspeed *from, const struct deepspeed_param *param)
{
    int64_t ranks = (int64_t)from->ranks;
    return ranks > 0 ? param->elements / ranks + (param->elements % ranks != 0) : param->elements;
}

/* ZeRO-3: each rank has one of as many equal pieces, the last of them padded. */
static dcp_status add_fragments(struct deepspeed *from, const struct deepspeed_param *param)
{
    int64_t piece = deepspeed_piece(from, param);
    const dcp_path_part path[] = {{.key = "frozen_param_fragments"}, {.key = param->name}};
    char name[4096];
    snprintf(name, sizeof name, "%s.%s", path[0].key, path[1].key);
    for (size_t rank = 0; rank < from->ranks; rank++) {
        int64_t left = param->elements - piece * (int64_t)rank;
        size_t file = from->model + rank, index = 0;
        dcp_checkpoint *checkpoint;
        dcp_entry entry = {0};
        if (left <= 0)
            break;
        RETURN_IF_ERROR(source_files_take(&from->parts->files, file, &checkpoint));
        dcp_status status = dcp_checkpoint_find(checkpoint, name, &index);
        if (status == DCP_OK)
            status = dcp_checkpoint_entry(checkpoint, index, &entry);
        if (status == DCP_OK &&
            (!entry.is_tensor || entry.ndim != 1 || entry.global_shape[0] != piece))
            status = dcp_error_set(
                DCP_ERR_SHAPE,
                "\"%s\" has shape [%" PRId64 "], expected [%" PRId64 "], one of %zu equal pieces",
                name, entry.ndim == 1 ? entry.global_shape[0] : -1, piece, from->ranks);
        source_files_give(&from->parts->files, file);
        if (status != DCP_OK)
            return error_prefix(status, "%s", from->parts->files.files[file].path);
        RETURN_IF_ERROR(source_parts_add(from->parts, file, index, 0, left < piece ? left : piece));
    }
    return DCP_OK;
}

/* A parameter that is gathered, as a tensor of a dtype. */
static dcp_status add_gathered(struct deepspeed *from, const struct deepspeed_param *param,
                               const dcp_path_part *path, size_t path_length, dcp_dtype dtype)
{
    RETURN_IF_ERROR(
        source_parts_tensor(from->parts, path, path_length, dtype, param->ndim, param->shape));
    if (param->frozen)
        RETURN_IF_ERROR(add_fragments(from, param));
    else
        RETURN_IF_ERROR(from->stage->add_master(from, param));
    return source_parts_end(from->parts);
}

static dcp_dtype widened(dcp_dtype dtype)
{
    return dtype == DCP_F16 || dtype == DCP_BF16 ? DCP_F32 : dtype;
}

static dcp_status check_shape(const struct deepspeed *from, const dcp_entry *entry,
                              const struct deepspeed_param *param)
{
    char found[128], expected[128];
    if (from->is_cut ||
        (entry->ndim == param->ndim &&
         memcmp(entry->global_shape, param->shape, (size_t)param->ndim * sizeof(int64_t)) == 0))
        return DCP_OK;
    return dcp_error_set(DCP_ERR_SHAPE,
                         "%s: \"%s\" has shape %s, expected %s, as param_shapes says",
                         from->parts->files.files[from->model].path, entry->name,
                         shape_format(entry->ndim, entry->global_shape, found, sizeof found),
                         shape_format(param->ndim, param->shape, expected, sizeof expected));
}

/* One name of the model. */
static dcp_status add_weight(struct deepspeed *from, size_t index, const dcp_entry *entry)
{
    const struct deepspeed_param *param;
    dcp_take take = from->source->options->take;
    const char *name = entry->name + sizeof module_key;
    const dcp_path_part path[] = {{.key = "model"}, {.key = name}};
    size_t skip = take == DCP_TAKE_ALL ? 0 : 1;
    RETURN_IF_ERROR(find_param(from, name, &param));
    if (param)
        RETURN_IF_ERROR(check_shape(from, entry, param));
    bool master = take == DCP_TAKE_MASTERS;
    if (param && from->stage && (from->is_cut || (master && !param->frozen)))
        return add_gathered(from, param, path + skip, 2 - skip,
                            !master         ? entry->dtype
                            : param->frozen ? widened(entry->dtype)
                                            : DCP_F32);
    return source_parts_copy(from->parts, path + skip, 2 - skip, from->model, index,
                             master ? widened(entry->dtype) : DCP_DTYPE_NONE);
}

/* Whether a key of the model's file says what is in it, and is no state of the training. */
static bool is_description(const dcp_entry *entry)
{
    static const char *const keys[] = {module_key,
                                       "param_shapes",
                                       "buffer_names",
                                       "shared_params",
                                       "frozen_param_shapes",
                                       optimizer_key,
                                       "frozen_param_fragments"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (entry->path[0].key && strcmp(entry->path[0].key, keys[i]) == 0)
            return true;
    return false;
}

static dcp_status add_entry(struct deepspeed *from, dcp_checkpoint *checkpoint, size_t index)
{
    dcp_entry entry;
    RETURN_IF_ERROR(dcp_checkpoint_entry(checkpoint, index, &entry));
    bool all = from->source->options->take == DCP_TAKE_ALL;
    bool optimizer = !from->stage && source_entry_is_below(&entry, optimizer_key);
    if (entry.is_tensor && source_entry_is_below(&entry, module_key))
        return add_weight(from, index, &entry);
    if (all && (optimizer || !is_description(&entry)))
        return source_parts_copy(from->parts, entry.path, entry.path_length, from->model, index,
                                 DCP_DTYPE_NONE);
    return DCP_OK;
}

static dcp_status add_optimizer(struct deepspeed *from)
{
    dcp_path_part path[3];
    for (size_t i = 0; i < from->param_count; i++) {
        const struct deepspeed_param *param = &from->params[i];
        if (param->frozen)
            continue;
        deepspeed_path(param, "fp32", path);
        RETURN_IF_ERROR(add_gathered(from, param, path, 3, DCP_F32));
        RETURN_IF_ERROR(from->stage->add_state(from, param));
    }
    return from->stage->add_rest(from);
}

/* Without ZeRO the optimizer's state is in the model's file, by numbers of which no file says which
 * parameter's they are: all of it is taken as it is. */
static dcp_status check_stage(const struct deepspeed *from, dcp_checkpoint *checkpoint)
{
    dcp_take take = from->source->options->take;
    bool whole = false;
    for (size_t i = 0; i < dcp_checkpoint_count(checkpoint) && !whole; i++) {
        dcp_entry entry;
        RETURN_IF_ERROR(dcp_checkpoint_entry(checkpoint, i, &entry));
        whole = source_entry_is_below(&entry, optimizer_key);
    }
    if (from->stage ||
        (!from->is_cut && (take == DCP_TAKE_MODEL || (take == DCP_TAKE_ALL && whole))))
        return DCP_OK;
    return dcp_error_set(DCP_ERR_UNSUPPORTED,
                         "%s: has no optimizer's files of ZeRO: there are no fp32 weights by name, "
                         "and nothing but the model%s is taken",
                         from->source->training, whole ? ", or all," : "");
}

dcp_status deepspeed_describe(struct deepspeed *from)
{
    dcp_checkpoint *checkpoint;
    size_t before = from->parts->count;
    dcp_take take = from->source->options->take;
    RETURN_IF_ERROR(source_files_take(&from->parts->files, from->model, &checkpoint));
    dcp_status status = check_stage(from, checkpoint);
    for (size_t i = 0; i < dcp_checkpoint_count(checkpoint) && status == DCP_OK; i++)
        status = add_entry(from, checkpoint, i);
    source_files_give(&from->parts->files, from->model);
    if (status == DCP_OK && from->parts->count == before)
        status = dcp_error_set(DCP_ERR_UNSUPPORTED,
                               "%s: has no tensors below \"module\": pipelines keep them elsewhere",
                               from->parts->files.files[from->model].path);
    return status == DCP_OK && take == DCP_TAKE_ALL && from->stage ? add_optimizer(from) : status;
}

dcp_status deepspeed_open(struct convert_source *source)
{
    struct deepspeed from;
    dcp_status status = deepspeed_begin(&from, source);
    bool needs = from.is_cut || source->options->take != DCP_TAKE_MODEL;
    if (status == DCP_OK && needs && from.files.counts[DEEPSPEED_OPTIMIZER] > 0)
        status = zero_begin(&from);
    if (status == DCP_OK)
        status = deepspeed_describe(&from);
    deepspeed_end(&from);
    return status;
}
