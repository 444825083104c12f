/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/shard_elements.h"

#include "base/error.h"
#include "device/device_copy.h"
#include "state/copy.h"
#include "state/device_memory.h"

static const unsigned char *first_element(const struct shard_source *source, struct box box)
{
    const struct state_chunk *chunk = source->chunk;
    int64_t start = 0;
    for (int32_t i = 0; i < box.ndim; i++)
        start += (box.offsets[i] - chunk->offsets[i]) * chunk->strides[i];
    return (const unsigned char *)chunk->data +
           start * (int64_t)dcp_dtype_size(source->item->dtype);
}

const void *shard_elements_dense(const struct shard_source *source, struct box box)
{
    const struct state_chunk *chunk = source->chunk;
    if (!device_is_host(&chunk->device) || !copy_is_dense(box.ndim, box.sizes, chunk->strides))
        return NULL;
    return first_element(source, box);
}

void shard_elements_start(struct shard_elements *elements, const struct shard_source *source,
                          struct box box, size_t most)
{
    *elements =
        (struct shard_elements){.source = source, .box = box, .first = first_element(source, box)};
    box_blocks_start_bounded(&elements->blocks, box.ndim, box.sizes,
                             (int64_t)(most / dcp_dtype_size(source->item->dtype)));
}

bool shard_elements_next(struct shard_elements *elements)
{
    if (!box_blocks_next(&elements->blocks, &elements->block))
        return false;
    int64_t count = box_volume(box_of(elements->box.ndim, &elements->block));
    elements->size = (size_t)count * dcp_dtype_size(elements->source->item->dtype);
    return true;
}

dcp_status shard_elements_gather(const struct shard_elements *elements, unsigned char *space)
{
    const struct shard_source *source = elements->source;
    const struct state_chunk *chunk = source->chunk;
    const int64_t *sizes = elements->block.sizes;
    int32_t ndim = elements->box.ndim;
    size_t element_size = dcp_dtype_size(source->item->dtype);
    int64_t dense[DCP_MAX_DIMS], start = 0;
    for (int32_t i = 0; i < ndim; i++)
        start += elements->block.offsets[i] * chunk->strides[i];
    const unsigned char *data = elements->first + start * (int64_t)element_size;
    shape_strides(ndim, sizes, dense);
    if (device_is_host(&chunk->device)) {
        copy_strided(ndim, sizes, element_size, data, chunk->strides, space, dense);
        return DCP_OK;
    }
    dcp_status status = device_copy_to_host(&chunk->device, ndim, sizes, element_size, data,
                                            chunk->strides, space, dense);
    return status == DCP_OK ? DCP_OK : error_prefix(status, "%s", source->item->name);
}
