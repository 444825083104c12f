/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "plan/save/save_plan.h"
#include "state/dtype.h"

/* The number of items of a node: one per chunk. A tensor without chunks on this rank gets an empty
 * item, so that an error results if no other rank holds it; scalars have no empty chunk. */
static uint32_t item_count(const dcp_state *node)
{
    if (node->kind != DCP_KIND_TENSOR)
        return 1;
    if (node->as.tensor->chunk_count == 0 && node->as.tensor->ndim > 0)
        return 1;
    return (uint32_t)node->as.tensor->chunk_count;
}

static size_t count_items(const struct flat_state *flat)
{
    size_t count = 0;
    for (size_t i = 0; i < flat->count; i++)
        count += item_count(flat->entries[i].node);
    return count;
}

static void describe_tensor(const struct state_tensor *tensor, uint32_t chunk,
                            struct write_item *item)
{
    static const int64_t nothing[DCP_MAX_DIMS];
    item->is_tensor = true;
    item->requires_grad = tensor->requires_grad;
    item->dtype = tensor->dtype;
    item->ndim = tensor->ndim;
    item->global_shape = tensor->global_shape;
    item->chunk = chunk;
    item->layout = tensor->chunk_count == 1 ? tensor->layout : NULL;
    item->box =
        chunk < tensor->chunk_count
            ? (struct box){tensor->ndim, tensor->chunks[chunk].offsets, tensor->chunks[chunk].sizes}
            : box_whole(tensor->ndim, nothing);
}

static dcp_status check_dtype(const struct flat_entry *entry)
{
    dcp_dtype dtype = entry->node->as.tensor->dtype;
    if (dtype_is_savable(dtype))
        return DCP_OK;
    return dcp_error_set(DCP_ERR_UNSUPPORTED,
                         "\"%s\": dtype %s cannot be saved, because PyTorch 2.13 cannot load it",
                         entry->name, dcp_dtype_name(dtype));
}

dcp_status save_plan_local(const struct flat_state *flat, const uint64_t *object_lengths,
                           struct save_plan *plan)
{
    *plan = (struct save_plan){.is_local = true};
    arena_init(&plan->arena, 0);
    size_t count = count_items(flat);
    if (count > UINT32_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "one rank has %zu chunks and objects, at most 2^32 - 1 are supported",
                             count);
    plan->items = arena_allocate_array(&plan->arena, count, sizeof *plan->items);
    if (plan->items == NULL)
        return error_no_memory(count * sizeof *plan->items, "a save plan");
    for (size_t i = 0; i < flat->count; i++) {
        const struct flat_entry *entry = &flat->entries[i];
        for (uint32_t chunk = 0; chunk < item_count(entry->node); chunk++) {
            struct write_item *item = &plan->items[plan->count++];
            *item = (struct write_item){.name = entry->name,
                                        .path = entry->path,
                                        .path_length = entry->path_length,
                                        .entry = (uint32_t)i};
            if (entry->node->kind == DCP_KIND_TENSOR)
                RETURN_IF_ERROR(check_dtype(entry));
            if (entry->node->kind == DCP_KIND_TENSOR)
                describe_tensor(entry->node->as.tensor, chunk, item);
            else
                item->object_length = object_lengths[i];
        }
    }
    return DCP_OK;
}
