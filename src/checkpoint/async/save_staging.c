/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/async/save_staging.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "state/box.h"
#include "state/node_block.h"

/* The elements of a box of a chunk. */
static void describe_box(const struct write_item *item, const struct state_chunk *chunk,
                         struct box box, struct staging_source *staged)
{
    size_t element_size = dcp_dtype_size(item->dtype);
    int64_t start = 0;
    for (int32_t i = 0; i < box.ndim; i++)
        start += (box.offsets[i] - chunk->offsets[i]) * chunk->strides[i];
    bool empty = box_volume(box) == 0;
    *staged = (struct staging_source){
        .name = item->name,
        .device = chunk->device,
        .from = empty ? NULL : (const unsigned char *)chunk->data + start * (int64_t)element_size,
        .ndim = box.ndim,
        .sizes = box.sizes,
        .strides = chunk->strides,
        .element_size = element_size,
    };
}

bool save_staging_describe(const struct write_order *order, const struct shard_source *source,
                           struct staging_source *staged)
{
    if (!source->item->is_tensor || !source->chunk)
        return false;
    describe_box(source->item, source->chunk, order->box, staged);
    staged->phase = (size_t)((order->offset + order->data_offset) % MEMORY_PAGE);
    return true;
}

dcp_status save_staging_needs(const struct write_orders *orders, const struct shard_source *sources,
                              const struct save_staging *staging, struct staging_needs *needs)
{
    struct staging_source *staged = memory_allocate_zeroed(orders->count, sizeof *staged);
    size_t count = 0;
    if (!staged)
        return error_no_memory(orders->count * sizeof *staged, "staging");
    for (size_t i = 0; i < orders->count; i++)
        count += save_staging_describe(&orders->orders[i], &sources[orders->orders[i].item],
                                       &staged[count]);
    staging_needs_find(staged, count, staging->options.detect_changes, needs);
    memory_release(staged);
    return DCP_OK;
}

static size_t count_chunks(const struct flat_state *flat)
{
    size_t count = 0;
    for (size_t i = 0; i < flat->count; i++)
        if (flat->entries[i].node->kind == DCP_KIND_TENSOR)
            count += flat->entries[i].node->as.tensor->chunk_count;
    return count;
}

dcp_status save_staging_describe_tree(const struct flat_state *flat,
                                      struct staging_source **sources, size_t *count)
{
    *count = count_chunks(flat);
    struct staging_source *next = *sources = memory_allocate_zeroed(*count, sizeof **sources);
    if (!next)
        return error_no_memory(*count * sizeof **sources, "staging");
    for (size_t i = 0; i < flat->count; i++) {
        const struct flat_entry *entry = &flat->entries[i];
        if (entry->node->kind != DCP_KIND_TENSOR)
            continue;
        const struct state_tensor *tensor = entry->node->as.tensor;
        struct write_item item = {.name = entry->name, .dtype = tensor->dtype};
        for (size_t c = 0; c < tensor->chunk_count; c++) {
            const struct state_chunk *chunk = &tensor->chunks[c];
            struct box box = {tensor->ndim, chunk->offsets, chunk->sizes};
            describe_box(&item, chunk, box, next++);
        }
    }
    return DCP_OK;
}

static dcp_status measure_objects(const struct flat_state *flat, uint64_t *memory)
{
    *memory = 0;
    for (size_t i = 0; i < flat->count; i++) {
        uint64_t one;
        if (flat->entries[i].node->kind == DCP_KIND_TENSOR)
            continue;
        RETURN_IF_ERROR(node_own_tensors_memory(flat->entries[i].node, &one));
        if (!checked_add_u64(*memory, one, memory))
            return error_no_memory(SIZE_MAX, "the tensors of objects");
    }
    return DCP_OK;
}

dcp_status save_staging_tree_needs(const struct flat_state *flat,
                                   const struct save_staging *staging, struct staging_needs *needs,
                                   uint64_t *objects)
{
    struct staging_source *sources;
    size_t count;
    RETURN_IF_ERROR(measure_objects(flat, objects));
    RETURN_IF_ERROR(save_staging_describe_tree(flat, &sources, &count));
    staging_needs_find(sources, count, staging->options.detect_changes, needs);
    memory_release(sources);
    return DCP_OK;
}
