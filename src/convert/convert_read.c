/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranges of a tensor's row-major elements, as boxes that the checkpoint can read, and several
 * tensors at once. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/view/view_read.h"
#include "convert/convert_source.h"
#include "convert/source_parts.h"

/* The largest box that begins at an element and has at most count of them: one index of the outer
 * dimensions, a range of one, all of the inner ones. Returns how many it has. */
static int64_t take_box(const struct convert_item *item, int64_t first, int64_t count,
                        dcp_tensor *box)
{
    int64_t inner = 1;
    int32_t split = item->ndim - 1;
    if (item->ndim == 0)
        return 1;
    for (int32_t d = item->ndim - 1; d >= 0; d--) {
        box->offsets[d] = first % item->shape[d];
        first /= item->shape[d];
    }
    while (split > 0 && box->offsets[split] == 0 && item->shape[split] <= count / inner) {
        inner *= item->shape[split];
        split--;
    }
    int64_t rows = item->shape[split] - box->offsets[split];
    if (rows > count / inner)
        rows = count / inner;
    for (int32_t d = 0; d < item->ndim; d++)
        box->sizes[d] = d < split ? 1 : item->shape[d];
    box->sizes[split] = rows;
    return rows * inner;
}

dcp_status convert_read(const struct convert_source *source, const struct convert_item *item,
                        int64_t first, int64_t count, void *elements)
{
    const dcp_read_options options = {.convert = item->dtype != item->stored};
    dcp_tensor box = {.dtype = item->dtype, .ndim = item->ndim, .sharded = true};
    unsigned char *place = elements;
    if (source->parts)
        return source_parts_read(source->parts, item->entry, first, count, item->dtype, elements);
    if (item->recipe)
        return item->recipe->read(source, item, first, count, elements);
    if (item->ndim > 0)
        memcpy(box.global_shape, item->shape, (size_t)item->ndim * sizeof *item->shape);
    while (count > 0) {
        int64_t taken = take_box(item, first, count, &box);
        box.data = place;
        dcp_status status =
            dcp_checkpoint_read_tensor(source->checkpoint, item->entry, &box, &options);
        if (status != DCP_OK)
            return status;
        place += (size_t)taken * dcp_dtype_size(item->dtype);
        first += taken;
        count -= taken;
    }
    return DCP_OK;
}

bool convert_is_plain(const struct convert_source *source, const struct convert_item *item)
{
    return item->is_tensor && !item->recipe && !source->parts;
}

dcp_status convert_read_wholes(const struct convert_source *source,
                               const struct convert_whole *wholes, size_t count)
{
    dcp_read_options options = {.convert = false};
    struct view_read *reads = memory_allocate_zeroed(count, sizeof *reads);
    if (!reads)
        return error_no_memory(count * sizeof *reads, "tensors to read");
    for (size_t i = 0; i < count; i++) {
        const struct convert_item *item = wholes[i].item;
        dcp_tensor *to = &reads[i].destination;
        reads[i].entry = item->entry;
        *to = (dcp_tensor){.dtype = item->dtype, .ndim = item->ndim, .data = wholes[i].elements};
        if (item->ndim > 0)
            memcpy(to->global_shape, item->shape, (size_t)item->ndim * sizeof *item->shape);
        options.convert = options.convert || item->dtype != item->stored;
    }
    dcp_status status = view_read_tensors(source->checkpoint, reads, count, &options);
    memory_release(reads);
    return status;
}
