/* SPDX-License-Identifier: BSD-3-Clause */
/* Gets the data to write for an item: looks it up and transforms it, by hooks or by default. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "checkpoint/hooks/save_hooks.h"
#include "checkpoint/save/saving.h"
#include "format/streams/item.h"
#include "format/streams/stream.h"
#include "state/copy.h"
#include "state/device_memory.h"

bool save_hooks_resolve(const struct save_hooks *hooks)
{
    const dcp_save_planner *planner = &hooks->planner;
    return planner->resolve_data || planner->lookup_object || planner->transform_object;
}

/* ---- looking up ---- */

static dcp_status find_entry(const dcp_saving *saving, const dcp_write_item *item, uint64_t *entry)
{
    const char *name = item->index.name;
    if (item->source != 0) {
        *entry = (item->source >> 32) - 1;
        if (*entry < saving->local.flat.count)
            return DCP_OK;
        return dcp_error_set(DCP_ERR_ARGUMENT, "the item \"%s\" has an invalid source", name);
    }
    if (name_table_find(&saving->hooks->names, name, strlen(name), entry))
        return DCP_OK;
    return dcp_error_set(DCP_ERR_NOT_FOUND, "the item \"%s\" of the save plan is not in the state",
                         name);
}

static dcp_status lookup_object(const dcp_saving *saving, const dcp_write_item *item,
                                const dcp_state **object)
{
    uint64_t entry;
    RETURN_IF_ERROR(find_entry(saving, item, &entry));
    *object = saving->local.flat.entries[entry].node;
    return DCP_OK;
}

/* ---- transforming ---- */

/* Finds the chunk of a tensor that contains a box. */
static const struct state_chunk *find_chunk(const struct state_tensor *tensor, struct box box)
{
    for (size_t i = 0; i < tensor->chunk_count; i++) {
        const struct state_chunk *chunk = &tensor->chunks[i];
        struct write_item item = {.global_shape = tensor->global_shape,
                                  .box = {tensor->ndim, chunk->offsets, chunk->sizes}};
        if (write_item_offers(&item, box))
            return chunk;
    }
    return NULL;
}

static dcp_status transform_tensor(const dcp_write_item *item, const dcp_state *object,
                                   dcp_write_data *data)
{
    const struct state_tensor *tensor = object->as.tensor;
    struct box box = {item->index.ndim, item->index.offsets, item->sizes};
    char text[256];
    if (tensor->ndim != box.ndim)
        return dcp_error_set(DCP_ERR_SHAPE,
                             "\"%s\" has %d dimensions in the plan, but %d in the state",
                             item->index.name, (int)box.ndim, (int)tensor->ndim);
    data->dtype = tensor->dtype;
    if (box_volume(box) == 0)
        return DCP_OK;
    const struct state_chunk *chunk = find_chunk(tensor, box);
    if (!chunk)
        return dcp_error_set(DCP_ERR_COVERAGE, "\"%s\": no chunk of the state holds %s",
                             item->index.name, box_format(box, text, sizeof text));
    int64_t start = 0;
    for (int32_t i = 0; i < box.ndim; i++)
        start += (box.offsets[i] - chunk->offsets[i]) * chunk->strides[i];
    data->strides = chunk->strides;
    data->device = chunk->device;
    data->data =
        (const unsigned char *)chunk->data + start * (int64_t)dcp_dtype_size(tensor->dtype);
    return DCP_OK;
}

static dcp_status encode_object(const dcp_state *object, dcp_write_data *data)
{
    struct buffer stream;
    buffer_init(&stream, 0);
    dcp_status status = item_encode_stream(object, &stream);
    if (status != DCP_OK) {
        buffer_free(&stream);
        return status;
    }
    data->bytes = stream.data;
    data->size = stream.size;
    data->release = memory_release;
    data->owner = stream.data;
    return DCP_OK;
}

static dcp_status transform_object(const dcp_write_item *item, const dcp_state *object,
                                   dcp_write_data *data)
{
    memset(data, 0, sizeof *data);
    if (!item->is_tensor)
        return encode_object(object, data);
    if (object->kind != DCP_KIND_TENSOR)
        return dcp_error_set(DCP_ERR_KIND, "\"%s\" is a tensor in the plan, but a %s in the state",
                             item->index.name, node_kind_name(object->kind));
    return transform_tensor(item, object, data);
}

/* ---- resolving ---- */

static dcp_status look_up_and_transform(dcp_saving *saving, const dcp_write_item *item,
                                        dcp_write_data *data)
{
    const dcp_save_planner *planner = &saving->hooks->planner;
    const dcp_state *object = NULL;
    memset(data, 0, sizeof *data);
    error_clear();
    dcp_status status =
        planner->lookup_object
            ? hook_status(planner->lookup_object(planner->context, saving, item, &object),
                          "lookup_object")
            : lookup_object(saving, item, &object);
    if (status == DCP_OK && !object)
        status = dcp_error_set(DCP_ERR_ARGUMENT,
                               "\"%s\": hook lookup_object succeeded, but found no object",
                               item->index.name);
    RETURN_IF_ERROR(status);
    error_clear();
    return planner->transform_object
               ? hook_status(
                     planner->transform_object(planner->context, saving, item, object, data),
                     "transform_object")
               : transform_object(item, object, data);
}

static dcp_status resolve(dcp_saving *saving, const dcp_write_item *item, dcp_write_data *data)
{
    const dcp_save_planner *planner = &saving->hooks->planner;
    memset(data, 0, sizeof *data);
    error_clear();
    return planner->resolve_data
               ? hook_status(planner->resolve_data(planner->context, saving, item, data),
                             "resolve_data")
               : look_up_and_transform(saving, item, data);
}

/* ---- the same for hooks, whose items may be those of another version ---- */

static dcp_status read_item(const dcp_write_item *item, size_t item_size, dcp_write_item *ours)
{
    RETURN_IF_ERROR(sized_read(ours, sizeof *ours, item, item_size, "dcp_write_item"));
    if (!ours->index.name)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the item has no name");
    return DCP_OK;
}

dcp_status dcp_save_default_lookup_object_sized(dcp_saving *saving, const dcp_write_item *item,
                                                size_t item_size, const dcp_state **object)
{
    dcp_write_item ours;
    if (!saving || !item || !object)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the save, the item or the result is NULL");
    RETURN_IF_ERROR(read_item(item, item_size, &ours));
    return lookup_object(saving, &ours, object);
}

dcp_status dcp_save_default_transform_object_sized(dcp_saving *saving, const dcp_write_item *item,
                                                   size_t item_size, const dcp_state *object,
                                                   dcp_write_data *data)
{
    dcp_write_item ours;
    if (!saving || !item || !object || !data)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "the save, the item, the object or the result is NULL");
    RETURN_IF_ERROR(read_item(item, item_size, &ours));
    return transform_object(&ours, object, data);
}

dcp_status dcp_save_default_resolve_data_sized(dcp_saving *saving, const dcp_write_item *item,
                                               size_t item_size, dcp_write_data *data)
{
    dcp_write_item ours;
    if (!saving || !item || !data)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the save, the item or the result is NULL");
    RETURN_IF_ERROR(read_item(item, item_size, &ours));
    return look_up_and_transform(saving, &ours, data);
}

static void release(const dcp_write_data *data)
{
    if (data->release)
        data->release(data->owner);
}

static dcp_status check_tensor(const dcp_write_item *item, const dcp_write_data *data)
{
    struct box box = {item->index.ndim, item->index.offsets, item->sizes};
    if (dcp_dtype_size(data->dtype) == 0 ||
        (data->dtype != item->dtype && !copy_can_convert(data->dtype, item->dtype)))
        return dcp_error_set(
            DCP_ERR_DTYPE, "\"%s\": %s in memory cannot be written as %s", item->index.name,
            dcp_dtype_size(data->dtype) ? dcp_dtype_name(data->dtype) : "a value without a dtype",
            dcp_dtype_name(item->dtype));
    if (!data->data && box_volume(box) > 0)
        return dcp_error_set(DCP_ERR_ARGUMENT, "\"%s\": the planner gave no data to write",
                             item->index.name);
    return device_is_host(&data->device) ? DCP_OK : device_check(&data->device);
}

/* Errors of the default look-up are found while planning, before anything is written. */
dcp_status save_resolve_check(dcp_saving *saving, const dcp_write_item *item)
{
    dcp_write_data data;
    RETURN_IF_ERROR(look_up_and_transform(saving, item, &data));
    return check_tensor(item, &data);
}

dcp_status save_resolve_item(dcp_saving *saving, const dcp_write_item *item, dcp_write_data *data)
{
    RETURN_IF_ERROR(resolve(saving, item, data));
    dcp_status status = DCP_OK;
    if (item->is_tensor)
        status = check_tensor(item, data);
    else if (!data->bytes || data->size == 0)
        status = dcp_error_set(DCP_ERR_ARGUMENT, "\"%s\": the planner gave no bytes to write",
                               item->index.name);
    if (status != DCP_OK)
        release(data);
    return status;
}

dcp_status save_resolve_box(void *context, const struct write_item *item, struct box box,
                            struct shard_resolved *resolved)
{
    dcp_saving *saving = context;
    struct write_item part = *item;
    dcp_write_data data;
    part.box = box;
    dcp_write_item view = save_plan_view_item(&saving->hooks->plan, &part);
    RETURN_IF_ERROR(save_resolve_item(saving, &view, &data));
    if (data.strides)
        memcpy(resolved->strides, data.strides, (size_t)box.ndim * sizeof *data.strides);
    else
        shape_strides(box.ndim, box.sizes, resolved->strides);
    /* Casts away const: nothing is changed through a chunk that is only read. */
    resolved->chunk = (struct state_chunk){.offsets = (int64_t *)box.offsets,
                                           .sizes = (int64_t *)box.sizes,
                                           .strides = resolved->strides,
                                           .data = (void *)data.data,
                                           .device = data.device};
    resolved->dtype = data.dtype;
    resolved->release = data.release;
    resolved->owner = data.owner;
    return DCP_OK;
}
