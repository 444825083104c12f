/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/pt_storages.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* The address that blocks pretend to have. */
#define BLOCK_ADDRESS ((uintptr_t)1 << 20)

/* A tensor, and where its storage is in the source. */
struct viewer {
    uint64_t offset;
    uint64_t bytes;
    size_t item;
    size_t element;
    bool covers; /* it reaches to both ends */
};

static int compare_viewers(const void *a, const void *b)
{
    const struct viewer *left = a, *right = b;
    if (left->offset != right->offset)
        return left->offset < right->offset ? -1 : 1;
    if (left->element != right->element)
        return left->element < right->element ? -1 : 1;
    return (left->item > right->item) - (left->item < right->item);
}

/* Whether the elements reach from the first to the last one of the storage. The numbers have been
 * checked against the storage when the file was opened. */
static bool covers(const struct convert_item *item, const dcp_stored_chunk *chunk)
{
    uint64_t last = 0;
    for (int32_t d = 0; d < item->ndim; d++)
        last += (uint64_t)(item->shape[d] - 1) * (uint64_t)chunk->strides[d];
    return chunk->storage_offset == 0 &&
           (last + 1) * dcp_dtype_size(item->stored) == chunk->storage_bytes;
}

static dcp_status list_viewers(const struct convert_source *source, struct viewer *viewers,
                               size_t *count)
{
    *count = 0;
    if (!source->checkpoint)
        return DCP_OK;
    for (size_t i = 0; i < source->count; i++) {
        const struct convert_item *item = &source->items[i];
        dcp_stored_chunk chunk;
        if (!item->is_tensor || item->recipe || item->dtype != item->stored || item->bytes == 0)
            continue;
        RETURN_IF_ERROR(dcp_checkpoint_chunk(source->checkpoint, item->entry, 0, &chunk));
        if (!chunk.strides || chunk.altered)
            continue;
        viewers[(*count)++] = (struct viewer){.offset = chunk.offset,
                                              .bytes = chunk.storage_bytes,
                                              .item = i,
                                              .element = dcp_dtype_size(item->stored),
                                              .covers = covers(item, &chunk)};
    }
    if (*count > 1)
        qsort(viewers, *count, sizeof *viewers, compare_viewers);
    return DCP_OK;
}

/* A storage that one tensor sees a part of is not kept: the part is. */
static void keep(struct pt_storages *storages, const struct viewer *viewers, size_t count)
{
    if (count == 1 && !viewers->covers)
        return;
    struct pt_storage *storage = &storages->storages[storages->count];
    uint64_t element = viewers->element;
    *storage = (struct pt_storage){.item = viewers->item};
    storage->block.data = (void *)BLOCK_ADDRESS; /* NOLINT(performance-no-int-to-ptr) */
    storage->block.size = viewers->bytes / element * element;
    for (size_t i = 0; i < count; i++)
        storages->of_item[viewers[i].item] = storages->count;
    storages->count++;
}

dcp_status pt_storages_find(struct pt_storages *storages, struct convert_source *source)
{
    size_t count = source->count;
    struct viewer *viewers = arena_allocate_array(&source->arena, count, sizeof *viewers);
    *storages = (struct pt_storages){0};
    storages->storages = arena_allocate_array(&source->arena, count, sizeof *storages->storages);
    storages->of_item = arena_allocate_array(&source->arena, count, sizeof *storages->of_item);
    if (!viewers || !storages->storages || !storages->of_item)
        return error_no_memory(count * sizeof *storages->storages, "storages");
    for (size_t i = 0; i < count; i++)
        storages->of_item[i] = SIZE_MAX;
    RETURN_IF_ERROR(list_viewers(source, viewers, &count));
    for (size_t begin = 0, end; begin < count; begin = end) {
        end = begin + 1;
        while (end < count && viewers[end].offset == viewers[begin].offset)
            end++;
        keep(storages, &viewers[begin], end - begin);
    }
    return DCP_OK;
}

dcp_status pt_storages_place(const struct pt_storages *storages,
                             const struct convert_source *source, const struct convert_item *item,
                             dcp_tensor *tensor)
{
    dcp_stored_chunk chunk;
    RETURN_IF_ERROR(dcp_checkpoint_chunk(source->checkpoint, item->entry, 0, &chunk));
    const struct pt_storage *storage = &storages->storages[storages->of_item[item - source->items]];
    tensor->strided = true;
    tensor->data =
        (char *)storage->block.data + (uint64_t)chunk.storage_offset * dcp_dtype_size(item->stored);
    if (item->ndim > 0)
        memcpy(tensor->strides, chunk.strides, (size_t)item->ndim * sizeof *tensor->strides);
    return DCP_OK;
}
