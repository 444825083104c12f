/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds destinations for items: by the planner's hooks, or the library's defaults. Only for items
 * of the final plan, after it has been resolved. What hooks return is checked. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "checkpoint/hooks/hooks.h"
#include "checkpoint/hooks/load_hooks_hand_over.h"
#include "format/streams/item.h"
#include "state/copy.h"

enum { SHAPE_TEXT = 256 };

static dcp_status find_item(const struct dcp_loading *loading, const dcp_read_item *item,
                            bool is_tensor, size_t *index)
{
    if (!loading || !item || !loading->hooks->item_steps)
        return dcp_error_set(DCP_ERR_STATE, "there is no load plan to read yet");
    uintptr_t way = (uintptr_t)item - (uintptr_t)loading->hooks->plan.items;
    *index = way / sizeof *item;
    if (way % sizeof *item != 0 || *index >= loading->hooks->plan.count)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the item is not in the final load plan");
    if (item->is_tensor != is_tensor)
        return dcp_error_set(DCP_ERR_KIND, "\"%s\" is %s", item->destination.name,
                             item->is_tensor ? "a tensor" : "an object");
    return DCP_OK;
}

static const struct state_tensor *wanted_tensor(const struct dcp_loading *loading, size_t index)
{
    const struct read_target *target = &loading->hooks->targets.targets[index];
    return loading->planning.flat.entries[target->wanted].node->as.tensor;
}

static dcp_status lookup(struct dcp_loading *loading, const dcp_read_item *item, dcp_tensor *chunk)
{
    size_t index;
    RETURN_IF_ERROR(find_item(loading, item, true, &index));
    const struct state_tensor *tensor = wanted_tensor(loading, index);
    const struct state_chunk *found = &tensor->chunks[loading->hooks->targets.targets[index].chunk];
    size_t bytes = (size_t)tensor->ndim * sizeof(int64_t);
    *chunk = (dcp_tensor){
        .dtype = tensor->dtype,
        .ndim = tensor->ndim,
        .sharded = true,
        .strided = true,
        .requires_grad = tensor->requires_grad,
        .device = found->device,
        .data = found->data,
    };
    memcpy(chunk->global_shape, tensor->global_shape, bytes);
    memcpy(chunk->offsets, found->offsets, bytes);
    memcpy(chunk->sizes, found->sizes, bytes);
    memcpy(chunk->strides, found->strides, bytes);
    return DCP_OK;
}

/* Fills in strides and sizes, which a tensor may leave out. */
static dcp_status spell_out(dcp_tensor *tensor)
{
    if (tensor->ndim < 0 || tensor->ndim > DCP_MAX_DIMS || dcp_dtype_size(tensor->dtype) == 0)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "the tensor has %d dimensions and dtype %d, which is invalid",
                             tensor->ndim, (int)tensor->dtype);
    if (!tensor->sharded)
        memcpy(tensor->sizes, tensor->global_shape, sizeof tensor->sizes);
    for (int32_t i = 0; i < tensor->ndim; i++)
        if (tensor->sizes[i] < 0)
            return dcp_error_set(DCP_ERR_ARGUMENT, "the tensor has a negative size");
    if (!tensor->strided)
        shape_strides(tensor->ndim, tensor->sizes, tensor->strides);
    tensor->sharded = tensor->strided = true;
    return DCP_OK;
}

static dcp_status transform(struct dcp_loading *loading, const dcp_read_item *item,
                            dcp_tensor *tensor)
{
    size_t index;
    int64_t way = 0;
    RETURN_IF_ERROR(find_item(loading, item, true, &index));
    RETURN_IF_ERROR(spell_out(tensor));
    int32_t ndim = item->destination.ndim;
    for (int32_t i = 0; i < ndim; i++) {
        int64_t offset = item->destination_offsets[i], length = item->lengths[i], part;
        if (tensor->ndim != ndim || offset > tensor->sizes[i] || length > tensor->sizes[i] - offset)
            return dcp_error_set(DCP_ERR_ARGUMENT, "the chunk is too small for its part");
        if (__builtin_mul_overflow(offset, tensor->strides[i], &part) ||
            __builtin_add_overflow(way, part, &way))
            return dcp_error_set(DCP_ERR_ARGUMENT, "the strides of the chunk overflow");
        tensor->offsets[i] += offset;
        tensor->sizes[i] = length;
    }
    if (tensor->data)
        tensor->data = (unsigned char *)tensor->data + way * (int64_t)dcp_dtype_size(tensor->dtype);
    return DCP_OK;
}

static dcp_status look_up_and_transform(struct dcp_loading *loading, const dcp_read_item *item,
                                        dcp_tensor *tensor)
{
    size_t index;
    RETURN_IF_ERROR(find_item(loading, item, true, &index));
    const dcp_load_planner *planner = &loading->hooks->planner;
    RETURN_IF_ERROR(lookup(loading, item, tensor));
    if (planner->lookup_tensor)
        RETURN_IF_ERROR(hook_status(planner->lookup_tensor(planner->context, loading, item, tensor),
                                    "lookup_tensor"));
    if (!planner->transform_tensor)
        return transform(loading, item, tensor);
    return hook_status(planner->transform_tensor(planner->context, loading, item, tensor),
                       "transform_tensor");
}

/* ---- the same for hooks, whose tensors may be those of another version ---- */

dcp_status dcp_load_default_lookup_tensor_sized(dcp_loading *loading, const dcp_read_item *item,
                                                dcp_tensor *chunk, size_t chunk_size)
{
    dcp_tensor ours;
    if (!chunk)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the result for a chunk is NULL");
    RETURN_IF_ERROR(lookup(loading, item, &ours));
    sized_write(chunk, chunk_size, &ours, sizeof ours);
    return DCP_OK;
}

dcp_status dcp_load_default_transform_tensor_sized(dcp_loading *loading, const dcp_read_item *item,
                                                   dcp_tensor *tensor, size_t tensor_size)
{
    dcp_tensor ours;
    if (!tensor)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the tensor is NULL");
    RETURN_IF_ERROR(sized_read(&ours, sizeof ours, tensor, tensor_size, "dcp_tensor"));
    RETURN_IF_ERROR(transform(loading, item, &ours));
    sized_write(tensor, tensor_size, &ours, sizeof ours);
    return DCP_OK;
}

dcp_status dcp_load_default_resolve_tensor_sized(dcp_loading *loading, const dcp_read_item *item,
                                                 dcp_tensor *tensor, size_t tensor_size)
{
    dcp_tensor ours;
    if (!tensor)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the result for a tensor is NULL");
    RETURN_IF_ERROR(look_up_and_transform(loading, item, &ours));
    sized_write(tensor, tensor_size, &ours, sizeof ours);
    return DCP_OK;
}

/* Gives a chunk without memory memory that the tree owns, and finds the part's place in it. */
static dcp_status give_memory(struct dcp_loading *loading, size_t index, dcp_tensor *tensor)
{
    const dcp_read_item *item = &loading->hooks->plan.items[index];
    const struct read_target *target = &loading->hooks->targets.targets[index];
    dcp_state *node = loading->planning.flat.entries[target->wanted].node;
    if (tensor->dtype != node->as.tensor->dtype || node->as.tensor->chunks[target->chunk].data)
        return dcp_error_set(
            DCP_ERR_ARGUMENT,
            "hook resolve_tensor gave a tensor without memory, and the state's own cannot be used");
    RETURN_IF_ERROR(node_chunk_allocate(node, target->chunk));
    RETURN_IF_ERROR(lookup(loading, item, tensor));
    return transform(loading, item, tensor);
}

static dcp_status check_resolved(struct dcp_loading *loading, size_t index, dcp_tensor *tensor)
{
    const dcp_read_item *item = &loading->hooks->plan.items[index];
    const struct read_target *target = &loading->hooks->targets.targets[index];
    dcp_dtype stored = loading->planning.stored.metadata.entries[target->entry].dtype;
    char found[SHAPE_TEXT], expected[SHAPE_TEXT];
    RETURN_IF_ERROR(spell_out(tensor));
    int32_t ndim = item->destination.ndim;
    if (tensor->ndim != ndim ||
        memcmp(tensor->sizes, item->lengths, (size_t)ndim * sizeof *item->lengths) != 0)
        return dcp_error_set(DCP_ERR_SHAPE, "hook resolve_tensor gave %s, expected %s",
                             shape_format(tensor->ndim, tensor->sizes, found, sizeof found),
                             shape_format(ndim, item->lengths, expected, sizeof expected));
    if (tensor->dtype != stored && !copy_can_convert(stored, tensor->dtype))
        return dcp_error_set(DCP_ERR_DTYPE,
                             "hook resolve_tensor gave %s, but the checkpoint has %s",
                             dcp_dtype_name(tensor->dtype), dcp_dtype_name(stored));
    if (copy_may_overlap(ndim, tensor->sizes, tensor->strides))
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "hook resolve_tensor gave a tensor that overlaps itself in memory");
    if (tensor->data || box_volume(target->destination) == 0)
        return DCP_OK;
    return give_memory(loading, index, tensor);
}

dcp_status hand_over_resolve(struct dcp_loading *loading, size_t index, dcp_tensor *tensor)
{
    const dcp_load_planner *planner = &loading->hooks->planner;
    const dcp_read_item *item = &loading->hooks->plan.items[index];
    dcp_status status;
    error_clear();
    if (planner->resolve_tensor) {
        memset(tensor, 0, sizeof *tensor);
        status = hook_status(planner->resolve_tensor(planner->context, loading, item, tensor),
                             "resolve_tensor");
    } else {
        status = look_up_and_transform(loading, item, tensor);
    }
    if (status == DCP_OK)
        status = check_resolved(loading, index, tensor);
    return status == DCP_OK ? DCP_OK : error_prefix(status, "%s", item->destination.name);
}

dcp_status hand_over_commit(struct dcp_loading *loading, size_t index, const dcp_tensor *tensor)
{
    const dcp_load_planner *planner = &loading->hooks->planner;
    const dcp_read_item *item = &loading->hooks->plan.items[index];
    if (!planner->commit_tensor)
        return DCP_OK;
    error_clear();
    dcp_status status = hook_status(planner->commit_tensor(planner->context, loading, item, tensor),
                                    "commit_tensor");
    return status == DCP_OK ? DCP_OK : error_prefix(status, "%s", item->destination.name);
}

dcp_status hand_over_object(struct dcp_loading *loading, size_t index, struct state_pool *pool,
                            dcp_state *object)
{
    struct loaded_objects *objects = &loading->objects;
    const struct read_target *target = &loading->hooks->targets.targets[index];
    if (objects->count == loading->hooks->plan.count)
        return dcp_error_set(DCP_ERR_STATE, "there are more loaded objects than items");
    objects->items[objects->count++] =
        (struct loaded_object){loading->planning.flat.entries[target->wanted].node, pool, object};
    return DCP_OK;
}

struct state_pool *hand_over_pool(const struct dcp_loading *loading, size_t index)
{
    const struct read_target *target = &loading->hooks->targets.targets[index];
    return state_pool_new(loading->planning.flat.entries[target->wanted].node->root);
}

dcp_status dcp_load_default_load_bytes(dcp_loading *loading, const dcp_read_item *item,
                                       const void *bytes, size_t size)
{
    size_t index;
    dcp_state *object = NULL;
    RETURN_IF_ERROR(find_item(loading, item, false, &index));
    if (!bytes)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the stream of an object is NULL");
    struct state_pool *pool = hand_over_pool(loading, index);
    if (!pool)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = item_read_object(byte_source_memory(bytes, size), pool, &object);
    if (status == DCP_OK)
        status = hand_over_object(loading, index, pool, object);
    if (status != DCP_OK)
        state_pool_free(pool);
    return status;
}

dcp_status hand_over_bytes(struct dcp_loading *loading, size_t index, const void *bytes,
                           size_t size)
{
    const dcp_load_planner *planner = &loading->hooks->planner;
    const dcp_read_item *item = &loading->hooks->plan.items[index];
    dcp_status status;
    error_clear();
    if (planner->load_bytes)
        status = hook_status(planner->load_bytes(planner->context, loading, item, bytes, size),
                             "load_bytes");
    else
        status = dcp_load_default_load_bytes(loading, item, bytes, size);
    return status == DCP_OK ? DCP_OK : error_prefix(status, "%s", item->destination.name);
}

dcp_status dcp_load_default_resolve_bytes(dcp_loading *loading, const dcp_read_item *item,
                                          size_t size, void **bytes)
{
    size_t index;
    RETURN_IF_ERROR(find_item(loading, item, false, &index));
    if (!bytes)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the result for memory is NULL");
    struct buffer *lent = &loading->hooks->bytes[index];
    buffer_clear(lent);
    RETURN_IF_ERROR(buffer_reserve(lent, size > 0 ? size : 1));
    *bytes = lent->data;
    return DCP_OK;
}

dcp_status hand_over_lend(struct dcp_loading *loading, size_t index, size_t size, void **bytes)
{
    const dcp_load_planner *planner = &loading->hooks->planner;
    const dcp_read_item *item = &loading->hooks->plan.items[index];
    if (!planner->resolve_bytes)
        return dcp_load_default_resolve_bytes(loading, item, size, bytes);
    *bytes = NULL;
    error_clear();
    dcp_status status = hook_status(
        planner->resolve_bytes(planner->context, loading, item, size, bytes), "resolve_bytes");
    if (status == DCP_OK && !*bytes)
        status =
            dcp_error_set(DCP_ERR_CALLBACK, "hook resolve_bytes succeeded, but gave no memory");
    return status == DCP_OK ? DCP_OK : error_prefix(status, "%s", item->destination.name);
}
