/* SPDX-License-Identifier: BSD-3-Clause */
/* Megatron-Core's torch_dist: a DCP directory whose metadata.json says so, beside it common.pt, and
 * what Megatron Bridge adds. Homogeneous layers are stacked in one tensor. Of the old flattened
 * form optimizer's tensors are stored as a grid of the ranks' flat shards. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "convert/source_buckets.h"
#include "convert/source_reformulated.h"
#include "convert/source_training.h"
#include "convert/source_values.h"

/* Cells of a grid: layers times experts times ranks. Layers: far more than any model has. */
enum { CELLS_MAX = 1 << 20, LAYERS_MAX = 4096, CHAINS_MAX = 64 };

struct megatron {
    struct convert_source *source;
    struct source_parts *parts;
    struct reformulated_shapes shapes;
    struct buckets buckets;
    int chains; /* optimizers, if there are several */
    dcp_checkpoint *checkpoint;
    size_t file; /* the DCP directory */
};

/* A stored tensor as it is to be seen. */
struct megatron_tensor {
    size_t index;
    dcp_entry entry;
    bool is_grid;
    bool in_buckets;
    int32_t ndim; /* without the grid, as the shape */
    const int64_t *shape;
};

static dcp_status look_at(const struct megatron *from, size_t index, struct megatron_tensor *tensor)
{
    uint64_t number;
    *tensor = (struct megatron_tensor){.index = index};
    RETURN_IF_ERROR(dcp_checkpoint_entry(from->checkpoint, index, &tensor->entry));
    const char *name = tensor->entry.name;
    tensor->ndim = tensor->entry.ndim;
    tensor->shape = tensor->entry.global_shape;
    tensor->is_grid = name_table_find(&from->shapes.names, name, strlen(name), &number);
    if (!tensor->is_grid)
        return DCP_OK;
    tensor->ndim = from->shapes.shapes[number].ndim;
    tensor->shape = from->shapes.shapes[number].shape;
    const int64_t *grid = tensor->entry.global_shape;
    int64_t cell = 1, cells = 1;
    bool fits = tensor->entry.is_tensor && tensor->entry.ndim == tensor->ndim + 1;
    for (int32_t d = 0; fits && d < tensor->ndim; d++)
        fits = grid[d] > 0 && tensor->shape[d] % grid[d] == 0 &&
               checked_multiply_i64(cell, tensor->shape[d] / grid[d], &cell) &&
               checked_multiply_i64(cells, grid[d], &cells);
    if (fits && grid[tensor->ndim] == cell && cells <= CELLS_MAX)
        return DCP_OK;
    char found[128], expected[128];
    return dcp_error_set(
        DCP_ERR_SHAPE,
        "%s/.metadata: \"%s\" is stored with shape %s, which is no grid of flat shards of %s",
        from->source->training, name, shape_format(tensor->entry.ndim, grid, found, sizeof found),
        shape_format(tensor->ndim, tensor->shape, expected, sizeof expected));
}

/* The cells of a grid that are in a layer (-1: in any), each of which lies row-major. */
static dcp_status add_cells(const struct megatron *from, const struct megatron_tensor *tensor,
                            int64_t layer)
{
    const int64_t *grid = tensor->entry.global_shape, length = grid[tensor->ndim];
    int64_t offsets[DCP_MAX_DIMS], sizes[DCP_MAX_DIMS], at[DCP_MAX_DIMS] = {0};
    int32_t skip = layer >= 0 ? 1 : 0;
    int64_t first = 0;
    if (layer >= 0) { /* a layer's cells are consecutive */
        at[0] = first = layer;
        for (int32_t d = 1; d < tensor->ndim; d++)
            first *= grid[d];
    }
    for (int64_t cell = first;; cell++) {
        for (int32_t d = 0; d < tensor->ndim; d++) {
            sizes[d] = tensor->shape[d] / grid[d];
            offsets[d] = at[d] * sizes[d];
        }
        const struct box box = {tensor->ndim - skip, offsets + skip, sizes + skip};
        if (length > 0)
            RETURN_IF_ERROR(source_parts_add_box(from->parts, from->file, tensor->index, box, NULL,
                                                 cell * length));
        int32_t d = tensor->ndim - 1;
        while (d >= skip && at[d] + 1 == grid[d])
            at[d--] = 0;
        if (d < skip)
            return DCP_OK;
        at[d]++;
    }
}

static dcp_status add_tensor(const struct megatron *from, const struct megatron_tensor *tensor,
                             const char *name, dcp_dtype dtype, int64_t layer)
{
    const dcp_path_part path = {.key = name};
    int32_t skip = layer >= 0 ? 1 : 0;
    int64_t elements = 0;
    shape_volume(tensor->ndim - skip, tensor->shape + skip, &elements);
    RETURN_IF_ERROR(source_parts_tensor(from->parts, &path, 1, dtype, tensor->ndim - skip,
                                        tensor->shape + skip));
    if (tensor->in_buckets)
        RETURN_IF_ERROR(buckets_add(&from->buckets, tensor->index, layer, from->parts, from->file));
    else if (tensor->is_grid)
        RETURN_IF_ERROR(add_cells(from, tensor, layer));
    else
        RETURN_IF_ERROR(source_parts_add(from->parts, from->file, tensor->index,
                                         layer >= 0 ? layer * elements : 0, elements));
    return source_parts_end(from->parts);
}

/* One tensor for each layer, with its number in the name. */
static dcp_status add_layers(const struct megatron *from, const struct megatron_tensor *tensor,
                             const char *name, dcp_dtype dtype)
{
    const char *rest = megatron_behind_layers(name);
    size_t size = strlen(name) + 32;
    if (tensor->is_grid && tensor->shape[0] != tensor->entry.global_shape[0])
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "%s: \"%s\" has layers that are not apart",
                             from->source->training, tensor->entry.name);
    if (tensor->shape[0] > LAYERS_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "%s: \"%s\" has %" PRId64 " layers, more than %d",
                             from->source->training, tensor->entry.name, tensor->shape[0],
                             LAYERS_MAX);
    char *numbered = memory_allocate(size);
    if (!numbered)
        return error_no_memory(size, "a name");
    dcp_status status = DCP_OK;
    for (int64_t layer = 0; layer < tensor->shape[0] && status == DCP_OK; layer++) {
        snprintf(numbered, size, "%.*s%" PRId64 ".%s", (int)(rest - name), name, layer, rest);
        status = add_tensor(from, tensor, numbered, dtype, layer);
    }
    memory_release(numbered);
    return status;
}

/* Looks for a tensor's fp32 weights in one of several optimizers (-1: there is only one). */
static dcp_status find_named(const struct megatron *from, const char *name, int chain,
                             size_t *index, bool *found)
{
    static const char *const prefixes[] = {"optimizer.state.fp32_param.", "optimizer.state.param."};
    char chained[32] = "";
    if (chain >= 0)
        snprintf(chained, sizeof chained, "chained_%d.", chain);
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes && !*found; i++) {
        size_t size = sizeof chained + strlen(prefixes[i]) + strlen(name) + 1;
        char *whole = memory_allocate(size);
        if (!whole)
            return error_no_memory(size, "a name");
        snprintf(whole, size, "%s%s%s", chained, prefixes[i], name);
        *found = source_entry_find(from->checkpoint, whole, index);
        memory_release(whole);
    }
    return DCP_OK;
}

/* The optimizer's tensor of a model's; false: there is none. */
static dcp_status find_master(const struct megatron *from, const struct megatron_tensor *weight,
                              struct megatron_tensor *master, bool *found)
{
    char one[128], other[128];
    size_t index = 0;
    *found = false;
    for (int chain = -1; chain < from->chains && !*found; chain++)
        RETURN_IF_ERROR(find_named(from, weight->entry.name, chain, &index, found));
    if (*found)
        RETURN_IF_ERROR(look_at(from, index, master));
    if (!*found && buckets_have(&from->buckets, weight->index)) {
        *found = true;
        *master = *weight;
        master->in_buckets = true;
    }
    if (!*found ||
        (master->entry.is_tensor && master->ndim == weight->ndim &&
         memcmp(master->shape, weight->shape, (size_t)weight->ndim * sizeof *weight->shape) == 0))
        return DCP_OK;
    return dcp_error_set(DCP_ERR_SHAPE, "%s: \"%s\" has shape %s, expected %s, as the model has it",
                         from->source->training, master->entry.name,
                         shape_format(master->ndim, master->shape, one, sizeof one),
                         shape_format(weight->ndim, weight->shape, other, sizeof other));
}

static dcp_status add_weight(const struct megatron *from, struct megatron_tensor *tensor)
{
    struct megatron_tensor master;
    const char *name = tensor->entry.name;
    dcp_dtype dtype = tensor->entry.dtype;
    bool found = false;
    if (from->source->options->take == DCP_TAKE_MASTERS) {
        RETURN_IF_ERROR(find_master(from, tensor, &master, &found));
        if (dtype == DCP_F16 || dtype == DCP_BF16 || found)
            dtype = DCP_F32;
    }
    bool layers =
        from->source->options->unstack && megatron_behind_layers(name) && tensor->ndim > 0;
    return (layers ? add_layers(from, found ? &master : tensor, name, dtype)
                   : add_tensor(from, found ? &master : tensor, name, dtype, -1));
}

static dcp_status add_entry(const struct megatron *from, size_t index)
{
    struct megatron_tensor tensor;
    uint64_t chain;
    bool all = from->source->options->take == DCP_TAKE_ALL;
    RETURN_IF_ERROR(look_at(from, index, &tensor));
    const dcp_path_part path = {.key = tensor.entry.name};
    if (!tensor.entry.is_tensor)
        return all ? source_parts_copy(from->parts, &path, 1, from->file, index, DCP_DTYPE_NONE)
                   : DCP_OK;
    if (!megatron_is_optimizer(tensor.entry.name, &chain))
        return add_weight(from, &tensor);
    return all ? add_tensor(from, &tensor, tensor.entry.name, tensor.entry.dtype, -1) : DCP_OK;
}

/* Looks for the optimizers' fp32 weights: without one of them a model of 16 bits would only be
 * widened. */
static dcp_status find_optimizers(struct megatron *from)
{
    bool narrow = false, masters = from->buckets.count > 0;
    for (size_t i = 0; i < dcp_checkpoint_count(from->checkpoint); i++) {
        dcp_entry entry;
        uint64_t chain;
        RETURN_IF_ERROR(dcp_checkpoint_entry(from->checkpoint, i, &entry));
        if (!megatron_is_optimizer(entry.name, &chain)) {
            narrow =
                narrow || (entry.is_tensor && (entry.dtype == DCP_F16 || entry.dtype == DCP_BF16));
            continue;
        }
        if (strncmp(entry.name, "chained_", 8) == 0 && chain < CHAINS_MAX &&
            (int)chain >= from->chains)
            from->chains = (int)chain + 1;
        masters = masters || strstr(entry.name, "optimizer.state.fp32_param.") ||
                  strstr(entry.name, "optimizer.state.param.");
    }
    return masters || !narrow
               ? DCP_OK
               : dcp_error_set(DCP_ERR_UNSUPPORTED,
                               "%s: has no fp32 weights: the optimizer was not saved",
                               from->source->training);
}

/* What a file of torch.save beside the directory's has, below a key. */
static dcp_status add_beside(struct megatron *from, const char *name, const char *below)
{
    const char *path;
    dcp_checkpoint *checkpoint;
    size_t file, skip = below ? 1 : 0;
    RETURN_IF_ERROR(source_files_add(&from->parts->files, from->source->training, name, &file));
    path = from->parts->files.files[file].path;
    if (access(path, F_OK) != 0)
        return DCP_OK;
    RETURN_IF_ERROR(source_files_take(&from->parts->files, file, &checkpoint));
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < dcp_checkpoint_count(checkpoint) && status == DCP_OK; i++) {
        dcp_entry entry;
        status = dcp_checkpoint_entry(checkpoint, i, &entry);
        if (status != DCP_OK)
            break;
        dcp_path_part *parts = memory_allocate_array(entry.path_length + 1, sizeof *parts);
        if (!parts) {
            status = error_no_memory(entry.path_length * sizeof *parts, "a name");
            break;
        }
        parts[0] = (dcp_path_part){.key = below};
        memcpy(parts + skip, entry.path, entry.path_length * sizeof *parts);
        status = source_parts_copy(from->parts, parts, entry.path_length + skip, file, i,
                                   DCP_DTYPE_NONE);
        memory_release(parts);
    }
    source_files_give(&from->parts->files, file);
    return status;
}

dcp_status megatron_open(struct convert_source *source)
{
    struct megatron from = {.source = source, .parts = source->parts};
    RETURN_IF_ERROR(source_files_add(&from.parts->files, source->training, NULL, &from.file));
    RETURN_IF_ERROR(source_files_take(&from.parts->files, from.file, &from.checkpoint));
    dcp_status status = reformulated_read(&from.shapes, source->training, &source->arena);
    if (status == DCP_OK && source->options->take == DCP_TAKE_MASTERS)
        status = buckets_find(&from.buckets, from.checkpoint, source->training, &source->arena);
    if (status == DCP_OK && source->options->take == DCP_TAKE_MASTERS)
        status = find_optimizers(&from);
    for (size_t i = 0; i < dcp_checkpoint_count(from.checkpoint) && status == DCP_OK; i++)
        status = add_entry(&from, i);
    source_files_give(&from.parts->files, from.file);
    if (status == DCP_OK && source->options->take == DCP_TAKE_ALL)
        status = add_beside(&from, "common.pt", NULL);
    if (status == DCP_OK && source->options->take == DCP_TAKE_ALL)
        status = add_beside(&from, "train_state.pt", "train_state");
    buckets_free(&from.buckets);
    reformulated_free(&from.shapes);
    return status;
}
