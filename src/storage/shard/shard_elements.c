/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/shard/shard_elements.h"

#include "base/error.h"
#include "base/memory.h"
#include "device/device_copy.h"
#include "state/copy.h"
#include "state/device_memory.h"

/* Of the elements in memory. */
static dcp_dtype memory_dtype(const struct shard_source *source)
{
    return source->dtype != DCP_DTYPE_NONE ? source->dtype : source->item->dtype;
}

dcp_status shard_source_open(struct shard_opened *opened, const struct shard_source *source,
                             struct box box)
{
    opened->source = *source;
    opened->resolved.release = NULL;
    if (!source->resolver)
        return DCP_OK;
    RETURN_IF_ERROR(
        source->resolver->resolve(source->resolver->context, source->item, box, &opened->resolved));
    opened->source.chunk = &opened->resolved.chunk;
    opened->source.dtype = opened->resolved.dtype;
    return DCP_OK;
}

void shard_source_close(struct shard_opened *opened)
{
    if (opened->resolved.release)
        opened->resolved.release(opened->resolved.owner);
}

static const unsigned char *first_element(const struct shard_source *source, struct box box)
{
    const struct state_chunk *chunk = source->chunk;
    int64_t start = 0;
    for (int32_t i = 0; i < box.ndim; i++)
        start += (box.offsets[i] - chunk->offsets[i]) * chunk->strides[i];
    return (const unsigned char *)chunk->data +
           start * (int64_t)dcp_dtype_size(memory_dtype(source));
}

dcp_status shard_elements_dense(const struct shard_source *source, struct box box,
                                const void **data)
{
    const struct state_chunk *chunk = source->chunk;
    *data = NULL;
    if (source->staging)
        return staging_is_whole(source->staging)
                   ? staging_take(source->staging, source->staged, data)
                   : DCP_OK;
    if (!source->resolver && memory_dtype(source) == source->item->dtype &&
        device_is_host(&chunk->device) && copy_is_dense(box.ndim, box.sizes, chunk->strides))
        *data = first_element(source, box);
    return DCP_OK;
}

/* Nothing of it where copies are waited for, block by block. */
static dcp_status start_stream(struct shard_elements *elements)
{
    const struct shard_source *source = elements->source;
    const struct state_chunk *chunk = source->chunk;
    const struct box box = elements->box;
    size_t element_size = dcp_dtype_size(memory_dtype(source));
    uint64_t bytes = (uint64_t)box_volume(box) * element_size;
    dcp_status status = device_lane_take(elements->lanes, &chunk->device, bytes, &elements->lane);
    if (status == DCP_OK && elements->lane)
        status = device_stream_start(&elements->stream, elements->lane, box.ndim, box.sizes,
                                     element_size, elements->first, chunk->strides);
    return status == DCP_OK ? DCP_OK : error_prefix(status, "%s", source->item->name);
}

dcp_status shard_elements_start(struct shard_elements *elements, const struct shard_source *source,
                                struct box box, size_t most, struct device_lanes *lanes)
{
    *elements = (struct shard_elements){.source = source, .box = box, .lanes = lanes};
    if (!source->staging)
        elements->first = first_element(source, box);
    box_blocks_start_bounded(&elements->blocks, box.ndim, box.sizes,
                             (int64_t)(most / dcp_dtype_size(source->item->dtype)));
    return source->staging ? DCP_OK : start_stream(elements);
}

void shard_elements_end(struct shard_elements *elements)
{
    device_lane_give(elements->lanes, elements->lane);
}

bool shard_elements_next(struct shard_elements *elements)
{
    elements->position += elements->size;
    if (!box_blocks_next(&elements->blocks, &elements->block))
        return false;
    int64_t count = box_volume(box_of(elements->box.ndim, &elements->block));
    elements->size = (size_t)count * dcp_dtype_size(elements->source->item->dtype);
    return true;
}

/* Copies the block from the device, unchanged. */
static dcp_status fetch(struct shard_elements *elements, const unsigned char *data,
                        const int64_t *dense, void *space)
{
    const struct state_chunk *chunk = elements->source->chunk;
    struct box box = box_of(elements->box.ndim, &elements->block);
    size_t element_size = dcp_dtype_size(memory_dtype(elements->source));
    if (elements->lane)
        return device_stream_read(&elements->stream, space, (size_t)box_volume(box) * element_size);
    return device_copy_to_host(&chunk->device, box.ndim, box.sizes, element_size, data,
                               chunk->strides, space, dense);
}

/* The same, before its elements are converted. */
static dcp_status convert_from_device(struct shard_elements *elements, const unsigned char *data,
                                      const int64_t *dense, unsigned char *space)
{
    const struct shard_source *source = elements->source;
    dcp_dtype from = memory_dtype(source), to = source->item->dtype;
    size_t bytes = elements->size / dcp_dtype_size(to) * dcp_dtype_size(from);
    void *block = memory_allocate(bytes);
    if (!block)
        return error_no_memory(bytes, "elements to convert");
    dcp_status status = fetch(elements, data, dense, block);
    if (status == DCP_OK)
        copy_convert(elements->box.ndim, elements->block.sizes, from, block, dense, to, space,
                     dense);
    memory_release(block);
    return status;
}

dcp_status shard_elements_gather(struct shard_elements *elements, unsigned char *space)
{
    const struct shard_source *source = elements->source;
    const struct state_chunk *chunk = source->chunk;
    const int64_t *sizes = elements->block.sizes;
    int32_t ndim = elements->box.ndim;
    dcp_dtype from = memory_dtype(source), to = source->item->dtype;
    int64_t dense[DCP_MAX_DIMS], start = 0;
    if (source->staging)
        return staging_read(source->staging, source->staged, elements->position, space,
                            elements->size);
    for (int32_t i = 0; i < ndim; i++)
        start += elements->block.offsets[i] * chunk->strides[i];
    const unsigned char *data = elements->first + start * (int64_t)dcp_dtype_size(from);
    shape_strides(ndim, sizes, dense);
    if (device_is_host(&chunk->device)) {
        if (from == to)
            copy_strided(ndim, sizes, dcp_dtype_size(to), data, chunk->strides, space, dense);
        else
            copy_convert(ndim, sizes, from, data, chunk->strides, to, space, dense);
        return DCP_OK;
    }
    dcp_status status = from == to ? fetch(elements, data, dense, space)
                                   : convert_from_device(elements, data, dense, space);
    return status == DCP_OK ? DCP_OK : error_prefix(status, "%s", source->item->name);
}
