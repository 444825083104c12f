/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranges of elements of a tensor, from the parts that they lie in. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "convert/source_parts.h"
#include "state/copy.h"

/* A range of an entry's elements, row-major, into dense memory. */
static dcp_status read_entry(struct source_parts *parts, size_t file, size_t entry, int64_t first,
                             int64_t count, dcp_dtype dtype, unsigned char *elements)
{
    dcp_tensor box = {.dtype = dtype, .sharded = true};
    dcp_checkpoint *checkpoint;
    dcp_entry about;
    RETURN_IF_ERROR(source_files_take(&parts->files, file, &checkpoint));
    dcp_status status = dcp_checkpoint_entry(checkpoint, entry, &about);
    if (status == DCP_OK) {
        box.ndim = about.ndim;
        memcpy(box.global_shape, about.global_shape, (size_t)about.ndim * sizeof(int64_t));
    }
    const dcp_read_options options = {.convert = status == DCP_OK && about.dtype != dtype};
    for (int64_t end = first + count; first < end && status == DCP_OK;) {
        int64_t taken = about.ndim == 0 ? 1
                                        : shape_next_box(about.ndim, about.global_shape, first, end,
                                                         box.offsets, box.sizes);
        box.data = elements;
        status = dcp_checkpoint_read_tensor(checkpoint, entry, &box, &options);
        elements += (size_t)taken * dcp_dtype_size(dtype);
        first += taken;
    }
    if (status != DCP_OK)
        status = error_prefix(status, "%s", parts->files.files[file].path);
    source_files_give_read(&parts->files, file);
    return status;
}

/* Parts that hold consecutive elements. */
static dcp_status read_consecutive(struct source_parts *parts, const struct source_tensor *tensor,
                                   int64_t first, int64_t count, dcp_dtype dtype,
                                   unsigned char *elements)
{
    int64_t begin = 0, end = first + count;
    for (size_t i = 0; i < tensor->part_count && begin < end; i++) {
        const struct source_part *part = &tensor->parts[i];
        int64_t length = part->count * (int64_t)part->times;
        for (int64_t at = first > begin ? first : begin; at < end && at < begin + length;) {
            int64_t number = (at - begin) / part->count, inside = (at - begin) % part->count;
            int64_t taken = part->count - inside < end - at ? part->count - inside : end - at;
            RETURN_IF_ERROR(read_entry(parts, part->file + (size_t)number, part->entry,
                                       part->first + inside, taken, dtype,
                                       elements + (size_t)(at - first) * dcp_dtype_size(dtype)));
            at += taken;
        }
        begin += length;
    }
    return DCP_OK;
}

/* A box of a part that lies in its entry as a box, straight into its place. */
static dcp_status read_box(struct source_parts *parts, const struct source_part *part,
                           struct box common, const int64_t *strides, dcp_dtype dtype, void *place)
{
    dcp_tensor box = {.dtype = dtype, .ndim = common.ndim, .sharded = true, .strided = true};
    dcp_checkpoint *checkpoint;
    dcp_entry about;
    RETURN_IF_ERROR(source_files_take(&parts->files, part->file, &checkpoint));
    dcp_status status = dcp_checkpoint_entry(checkpoint, part->entry, &about);
    if (status == DCP_OK && about.ndim != common.ndim)
        status = dcp_error_set(DCP_ERR_SHAPE, "%s: has %d dimensions, expected %d", about.name,
                               (int)about.ndim, (int)common.ndim);
    for (int32_t d = 0; d < common.ndim && status == DCP_OK; d++) {
        box.global_shape[d] = about.global_shape[d];
        box.offsets[d] = common.offsets[d] - part->offsets[d] + part->entry_offsets[d];
        box.sizes[d] = common.sizes[d];
        box.strides[d] = strides[d];
    }
    box.data = place;
    if (status == DCP_OK)
        status = dcp_checkpoint_read_tensor(checkpoint, part->entry, &box,
                                            &(dcp_read_options){.convert = about.dtype != dtype});
    if (status != DCP_OK)
        status = error_prefix(status, "%s", parts->files.files[part->file].path);
    source_files_give_read(&parts->files, part->file);
    return status;
}

/* A box of a part that lies row-major in its entry. What shape_next_box() gives is whole in all
 * dimensions behind one, and has one index in those before it: so is what it has in common with the
 * part, whose elements are thus consecutive there. */
static dcp_status read_row_major(struct source_parts *parts, const struct source_part *part,
                                 struct box common, const int64_t *strides, dcp_dtype dtype,
                                 void *place)
{
    int64_t inner[DCP_MAX_DIMS], own[DCP_MAX_DIMS], first = part->first;
    int64_t count = box_volume(common);
    size_t element = dcp_dtype_size(dtype);
    shape_strides(common.ndim, part->sizes, inner);
    shape_strides(common.ndim, common.sizes, own);
    for (int32_t d = 0; d < common.ndim; d++)
        first += (common.offsets[d] - part->offsets[d]) * inner[d];
    void *space = memory_allocate_array((size_t)count, element);
    if (!space)
        return error_no_memory((size_t)count * element, "a part of a tensor");
    dcp_status status = read_entry(parts, part->file, part->entry, first, count, dtype, space);
    if (status == DCP_OK)
        copy_strided(common.ndim, common.sizes, element, space, own, place, strides);
    memory_release(space);
    return status;
}

static dcp_status read_boxes(struct source_parts *parts, const struct source_tensor *tensor,
                             int64_t first, int64_t count, dcp_dtype dtype, unsigned char *elements)
{
    int64_t offsets[DCP_MAX_DIMS], sizes[DCP_MAX_DIMS], strides[DCP_MAX_DIMS];
    struct box_storage common;
    shape_strides(tensor->ndim, tensor->shape, strides);
    for (int64_t at = first, end = first + count; at < end;) {
        int64_t taken = shape_next_box(tensor->ndim, tensor->shape, at, end, offsets, sizes);
        const struct box wanted = {tensor->ndim, offsets, sizes};
        for (size_t i = 0; i < tensor->part_count; i++) {
            const struct source_part *part = &tensor->parts[i];
            const struct box box = {tensor->ndim, part->offsets, part->sizes};
            int64_t place = -first;
            if (!box_intersect(wanted, box, &common))
                continue;
            for (int32_t d = 0; d < tensor->ndim; d++)
                place += common.offsets[d] * strides[d];
            RETURN_IF_ERROR((part->entry_offsets ? read_box : read_row_major)(
                parts, part, box_of(tensor->ndim, &common), strides, dtype,
                elements + (size_t)place * dcp_dtype_size(dtype)));
        }
        at += taken;
    }
    return DCP_OK;
}

dcp_status source_parts_read(struct source_parts *parts, size_t tensor, int64_t first,
                             int64_t count, dcp_dtype dtype, void *elements)
{
    const struct source_tensor *read = &parts->tensors[tensor];
    const int64_t one = 1;
    bool boxes = read->ndim > 0 && read->part_count > 0 && read->parts[0].offsets;
    dcp_status (*way)(struct source_parts *, const struct source_tensor *, int64_t, int64_t,
                      dcp_dtype, unsigned char *) = boxes ? read_boxes : read_consecutive;
    if (dtype == read->dtype)
        return way(parts, read, first, count, dtype, elements);
    /* What lies there may be wider than the tensor: it is rounded to its dtype first. */
    void *space = memory_allocate_array((size_t)count, dcp_dtype_size(read->dtype));
    if (!space)
        return error_no_memory((size_t)count * dcp_dtype_size(read->dtype), read->name);
    dcp_status status = way(parts, read, first, count, read->dtype, space);
    if (status == DCP_OK)
        copy_convert(1, &count, read->dtype, space, &one, dtype, elements, &one);
    memory_release(space);
    return status;
}
