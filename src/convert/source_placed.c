/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/source_placed.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

/* Runs of indexes that a rank may have of one dimension, and boxes of all: strided shards of uneven
 * sizes have some. */
enum { RUNS_MAX = 4096 };

struct runs {
    int64_t (*items)[2]; /* begin, length */
    size_t count, capacity;
    int64_t total;
};

static dcp_status append_run(struct runs *runs, int64_t begin, int64_t length)
{
    if (length <= 0)
        return DCP_OK;
    runs->total += length;
    if (runs->count > 0 &&
        runs->items[runs->count - 1][0] + runs->items[runs->count - 1][1] == begin) {
        runs->items[runs->count - 1][1] += length;
        return DCP_OK;
    }
    if (runs->count == RUNS_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "a part of more than %d pieces", RUNS_MAX);
    if (runs->count == runs->capacity) {
        size_t capacity = runs->capacity == 0 ? 4 : runs->capacity * 2;
        int64_t(*grown)[2] = memory_reallocate_array(runs->items, capacity, sizeof *grown);
        if (!grown)
            return error_no_memory(capacity * sizeof *grown, "a part of a tensor");
        runs->items = grown;
        runs->capacity = capacity;
    }
    runs->items[runs->count][0] = begin;
    runs->items[runs->count++][1] = length;
    return DCP_OK;
}

/* The indexes at begin to end - 1 of all that are in runs. */
static dcp_status append_slice(struct runs *out, const struct runs *runs, int64_t begin,
                               int64_t end)
{
    int64_t at = 0;
    for (size_t i = 0; i < runs->count && at < end; i++) {
        int64_t length = runs->items[i][1];
        int64_t low = begin > at ? begin - at : 0;
        int64_t high = end - at < length ? end - at : length;
        RETURN_IF_ERROR(append_run(out, runs->items[i][0] + low, high - low));
        at += length;
    }
    return DCP_OK;
}

static int64_t divide_up(int64_t number, int64_t by)
{
    return number / by + (number % by != 0);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Cuts what is left of a dimension among the ranks of one dimension of the mesh. A strided shard is
 * cut into split_factor pieces first, and each of them among the ranks. */
static dcp_status cut(struct runs *runs, const dcp_placement *placement, int64_t ranks,
                      int64_t coordinate)
{
    struct runs kept = {0};
    int64_t pieces = placement->kind == DCP_STRIDED_SHARD ? placement->split_factor : 1;
    int64_t piece = divide_up(runs->total, pieces);
    dcp_status status = DCP_OK;
    for (int64_t begin = 0; begin < runs->total && status == DCP_OK; begin += piece) {
        int64_t length = smaller(piece, runs->total - begin), part = divide_up(length, ranks);
        int64_t low = part > 0 && coordinate < divide_up(length, part) ? coordinate * part : length;
        status = append_slice(&kept, runs, begin + low, begin + smaller(low + part, length));
    }
    memory_release(runs->items);
    *runs = kept;
    return status;
}

static dcp_status check_layout(const struct source_tensor *tensor, const dcp_layout *layout)
{
    int64_t ranks = 1;
    bool fits = layout->mesh.ndim >= 0 && layout->mesh.ndim <= DCP_MAX_MESH_DIMS;
    for (int32_t i = 0; fits && i < layout->mesh.ndim; i++) {
        const dcp_placement *placement = &layout->placements[i];
        fits = layout->mesh.shape[i] > 0 &&
               checked_multiply_i64(ranks, layout->mesh.shape[i], &ranks) &&
               (placement->kind == DCP_REPLICATE ||
                (placement->dim >= 0 && placement->dim < tensor->ndim)) &&
               (placement->kind != DCP_STRIDED_SHARD ||
                (placement->split_factor > 0 && placement->split_factor <= RUNS_MAX));
    }
    return fits && layout->mesh.rank >= 0 && layout->mesh.rank < ranks
               ? DCP_OK
               : dcp_error_set(DCP_ERR_FORMAT,
                               "%s: its mesh and placements are impossible for %d dimensions",
                               tensor->name, (int)tensor->ndim);
}

/* What the rank has of a dimension. */
static dcp_status find_runs(const struct source_tensor *tensor, const dcp_layout *layout, int32_t d,
                            struct runs *runs)
{
    int64_t rest = 1;
    for (int32_t i = 0; i < layout->mesh.ndim; i++)
        rest *= layout->mesh.shape[i];
    dcp_status status = append_run(runs, 0, tensor->shape[d]);
    for (int32_t i = 0; i < layout->mesh.ndim && status == DCP_OK; i++) {
        rest /= layout->mesh.shape[i];
        int64_t coordinate = layout->mesh.rank / rest % layout->mesh.shape[i];
        if (layout->placements[i].kind != DCP_REPLICATE && layout->placements[i].dim == d)
            status = cut(runs, &layout->placements[i], layout->mesh.shape[i], coordinate);
    }
    return status;
}

dcp_status source_parts_add_once(struct source_parts *parts, size_t file, size_t entry,
                                 struct box box, const int64_t *entry_offsets)
{
    int64_t numbers[2 * DCP_MAX_DIMS];
    size_t size = 2 * (size_t)box.ndim * sizeof *numbers;
    uint64_t index = parts->part_count;
    bool existing;
    memcpy(numbers, box.offsets, size / 2);
    memcpy(numbers + box.ndim, box.sizes, size / 2);
    if (name_table_find(&parts->boxes, (const char *)numbers, size, &index))
        return DCP_OK;
    const char *kept = arena_copy(parts->arena, numbers, size);
    if (!kept)
        return error_no_memory(size, "a part of a tensor");
    RETURN_IF_ERROR(name_table_add(&parts->boxes, kept, size, &index, &existing));
    return source_parts_add_box(parts, file, entry, box, entry_offsets, 0);
}

/* Goes to the next combination of one run of each dimension, the last dimension first; false: there
 * is none. */
static bool next_combination(int32_t ndim, const struct runs *runs, size_t *at, int64_t *inside)
{
    for (int32_t d = ndim; d-- > 0;) {
        if (at[d] + 1 < runs[d].count) {
            inside[d] += runs[d].items[at[d]++][1];
            return true;
        }
        at[d] = 0;
        inside[d] = 0;
    }
    return false;
}

static dcp_status add_boxes(struct source_parts *parts, size_t file, size_t entry, int32_t ndim,
                            const struct runs *runs)
{
    size_t at[DCP_MAX_DIMS] = {0};
    int64_t offsets[DCP_MAX_DIMS], sizes[DCP_MAX_DIMS], inside[DCP_MAX_DIMS] = {0};
    size_t boxes = 1;
    for (int32_t d = 0; d < ndim; d++) {
        if (runs[d].count == 0 || !runs[d].items)
            return DCP_OK;
        boxes *= runs[d].count; /* neither is more than RUNS_MAX */
        if (boxes > RUNS_MAX)
            return dcp_error_set(DCP_ERR_UNSUPPORTED, "%s: a part of more than %d boxes",
                                 parts->tensors[parts->count - 1].name, RUNS_MAX);
    }
    do {
        for (int32_t d = 0; d < ndim; d++) {
            offsets[d] = runs[d].items[at[d]][0];
            sizes[d] = runs[d].items[at[d]][1];
        }
        RETURN_IF_ERROR(
            source_parts_add_once(parts, file, entry, (struct box){ndim, offsets, sizes}, inside));
    } while (next_combination(ndim, runs, at, inside));
    return DCP_OK;
}

static dcp_status check_entry(struct source_parts *parts, size_t file, size_t index, int32_t ndim,
                              const int64_t *expected)
{
    char one[128], other[128];
    dcp_checkpoint *checkpoint;
    dcp_entry entry;
    RETURN_IF_ERROR(source_files_take(&parts->files, file, &checkpoint));
    dcp_status status = dcp_checkpoint_entry(checkpoint, index, &entry);
    if (status == DCP_OK &&
        (!entry.is_tensor || entry.ndim != ndim ||
         memcmp(entry.global_shape, expected, (size_t)ndim * sizeof *expected) != 0))
        status = dcp_error_set(
            DCP_ERR_SHAPE, "%s: \"%s\" has shape %s, expected %s, as the tensor's placements say",
            parts->files.files[file].path, entry.name,
            entry.is_tensor ? shape_format(entry.ndim, entry.global_shape, one, sizeof one)
                            : "of no tensor",
            shape_format(ndim, expected, other, sizeof other));
    source_files_give(&parts->files, file);
    return status;
}

dcp_status source_parts_add_placed(struct source_parts *parts, size_t file, size_t entry,
                                   const dcp_layout *layout)
{
    const struct source_tensor *tensor = &parts->tensors[parts->count - 1];
    struct runs runs[DCP_MAX_DIMS];
    int64_t local[DCP_MAX_DIMS];
    RETURN_IF_ERROR(check_layout(tensor, layout));
    memset(runs, 0, sizeof runs);
    dcp_status status = DCP_OK;
    for (int32_t d = 0; d < tensor->ndim && status == DCP_OK; d++) {
        status = find_runs(tensor, layout, d, &runs[d]);
        local[d] = runs[d].total;
    }
    if (status == DCP_OK)
        status = check_entry(parts, file, entry, tensor->ndim, local);
    if (status == DCP_OK)
        status = add_boxes(parts, file, entry, tensor->ndim, runs);
    for (int32_t d = 0; d < tensor->ndim; d++)
        memory_release(runs[d].items);
    return status;
}

bool source_parts_are_complete(const struct source_parts *parts)
{
    const struct source_tensor *tensor = &parts->tensors[parts->count - 1];
    int64_t elements, found = 0;
    shape_volume(tensor->ndim, tensor->shape, &elements);
    for (size_t i = 0; i < parts->part_count; i++)
        if (!checked_add_i64(found, parts->parts[i].count, &found))
            return true;
    return found >= elements;
}
