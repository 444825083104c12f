/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/hooks/save_plan_view.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"

void save_plan_view_init(struct dcp_save_plan *plan)
{
    *plan = (struct dcp_save_plan){0};
    arena_init(&plan->arena, 0);
}

void save_plan_view_free(struct dcp_save_plan *plan)
{
    memory_release(plan->items);
    plan_data_free(&plan->planner_data);
    plan_data_free(&plan->storage_data);
    arena_free(&plan->arena);
    *plan = (struct dcp_save_plan){0};
}

dcp_status save_plan_view_append(struct dcp_save_plan *plan, const struct write_item *item)
{
    if (plan->count == plan->capacity) {
        size_t capacity = 2 * plan->capacity + 16;
        struct write_item *items = memory_reallocate_array(plan->items, capacity, sizeof *items);
        if (!items)
            return error_no_memory(capacity * sizeof *items, "a save plan");
        plan->items = items;
        plan->capacity = capacity;
    }
    plan->items[plan->count++] = *item;
    return DCP_OK;
}

/* ---- from an item of a caller's ---- */

static dcp_status refuse(const dcp_write_item *item, const char *what)
{
    return dcp_error_set(DCP_ERR_ARGUMENT, "the item \"%.200s\" of a save plan %s",
                         item->index.name ? item->index.name : "(NULL)", what);
}

static void append_part(struct buffer *joined, const dcp_path_part *part)
{
    if (part->key)
        buffer_append(joined, part->key, strlen(part->key));
    else
        buffer_append_format(joined, "%" PRId64, part->position);
}

static dcp_status check_path(const dcp_write_item *item)
{
    struct buffer joined;
    buffer_init(&joined, 0);
    for (size_t i = 0; i < item->path_length; i++) {
        if (i > 0)
            buffer_append(&joined, ".", 1);
        append_part(&joined, &item->path[i]);
    }
    dcp_status status = buffer_status(&joined);
    if (status == DCP_OK && (joined.size != strlen(item->index.name) ||
                             memcmp(joined.data, item->index.name, joined.size) != 0))
        status = refuse(item, "has a path that, joined by dots, is not its name");
    buffer_free(&joined);
    return status;
}

static dcp_status check_tensor(const dcp_write_item *item)
{
    int32_t ndim = item->index.ndim;
    uint64_t bytes;
    if (ndim < 0 || ndim > DCP_MAX_DIMS || dcp_dtype_size(item->dtype) == 0)
        return refuse(item, "has an invalid dtype or number of dimensions");
    if (ndim > 0 && (!item->global_shape || !item->sizes || !item->index.offsets))
        return refuse(item, "has no shape, sizes or offsets");
    if (!shape_bytes(ndim, item->global_shape, item->dtype, &bytes))
        return refuse(item, "has a shape that is negative or too large");
    if (!box_check((struct box){ndim, item->index.offsets, item->sizes}, item->global_shape))
        return refuse(item, "has a chunk that is not inside its tensor");
    return DCP_OK;
}

static const int64_t *copy_numbers(struct arena *arena, int32_t ndim, const int64_t *numbers)
{
    int64_t *copy = arena_allocate_array(arena, (size_t)ndim, sizeof *copy);
    for (int32_t i = 0; copy && i < ndim; i++)
        copy[i] = numbers[i];
    return copy;
}

static dcp_status copy_tensor(struct arena *arena, const dcp_write_item *from,
                              struct write_item *to)
{
    RETURN_IF_ERROR(check_tensor(from));
    int32_t ndim = from->index.ndim;
    to->is_tensor = true;
    to->requires_grad = from->requires_grad;
    to->dtype = from->dtype;
    to->ndim = ndim;
    to->global_shape = copy_numbers(arena, ndim, from->global_shape);
    to->box.ndim = ndim;
    to->box.offsets = copy_numbers(arena, ndim, from->index.offsets);
    to->box.sizes = copy_numbers(arena, ndim, from->sizes);
    return to->global_shape && to->box.offsets && to->box.sizes
               ? DCP_OK
               : error_no_memory(3 * (size_t)ndim * sizeof(int64_t), "an item of a save plan");
}

static dcp_status copy_path(struct arena *arena, const dcp_write_item *from, struct write_item *to)
{
    size_t length = from->path_length ? from->path_length : 1;
    dcp_path_part *path = arena_allocate_array(arena, length, sizeof *path);
    if (!path)
        return error_no_memory(length * sizeof *path, "an item of a save plan");
    path[0] = (dcp_path_part){.key = to->name};
    for (size_t i = 0; i < from->path_length; i++) {
        path[i] = from->path[i];
        if (!path[i].key)
            continue;
        path[i].key = arena_copy_text(arena, path[i].key, strlen(path[i].key));
        if (!path[i].key)
            return error_no_memory(strlen(from->path[i].key), "an item of a save plan");
    }
    to->path = path;
    to->path_length = length;
    return DCP_OK;
}

static dcp_status copy_item(struct dcp_save_plan *plan, const dcp_write_item *from,
                            struct write_item *to)
{
    const char *name = from->index.name;
    *to = (struct write_item){.entry = ENTRY_NONE};
    if (!name || !utf8_is_valid(name, strlen(name)))
        return refuse(from, "has no name in valid UTF-8");
    if (from->path_length > 0 && !from->path)
        return refuse(from, "has no path");
    if (from->path_length > 0)
        RETURN_IF_ERROR(check_path(from));
    to->name = arena_copy_text(&plan->arena, name, strlen(name));
    if (!to->name)
        return error_no_memory(strlen(name) + 1, "an item of a save plan");
    RETURN_IF_ERROR(copy_path(&plan->arena, from, to));
    if (from->source != 0) {
        to->entry = (uint32_t)((from->source >> 32) - 1);
        to->chunk = (uint32_t)from->source;
    }
    if (from->is_tensor)
        return copy_tensor(&plan->arena, from, to);
    to->object_length = from->object_length;
    return DCP_OK;
}

/* ---- the public calls ---- */

dcp_write_item save_plan_view_item(const struct dcp_save_plan *plan, const struct write_item *item)
{
    dcp_write_item view = {
        .index = {.name = item->name},
        .path = item->path,
        .path_length = item->path_length,
        .is_tensor = item->is_tensor,
        .object_length = item->object_length,
    };
    if (item->is_tensor) {
        view.index.offsets = item->box.offsets;
        view.index.ndim = item->ndim;
        view.dtype = item->dtype;
        view.requires_grad = item->requires_grad;
        view.global_shape = item->global_shape;
        view.sizes = item->box.sizes;
    }
    if (plan->has_sources && item->entry != ENTRY_NONE)
        view.source = ((uint64_t)item->entry + 1) << 32 | item->chunk;
    return view;
}

size_t dcp_save_plan_count(const dcp_save_plan *plan)
{
    return plan ? plan->count : 0;
}

static dcp_status check_index(const dcp_save_plan *plan, size_t index, const void *item)
{
    if (!plan || !item)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the save plan or the result is NULL");
    if (index >= plan->count)
        return dcp_error_set(DCP_ERR_ARGUMENT, "there is no item %zu: the save plan has %zu items",
                             index, plan->count);
    return DCP_OK;
}

dcp_status dcp_save_plan_item_sized(const dcp_save_plan *plan, size_t index, dcp_write_item *item,
                                    size_t item_size)
{
    RETURN_IF_ERROR(check_index(plan, index, item));
    dcp_write_item ours = save_plan_view_item(plan, &plan->items[index]);
    sized_write(item, item_size, &ours, sizeof ours);
    return DCP_OK;
}

dcp_status dcp_save_plan_set_item_sized(dcp_save_plan *plan, size_t index,
                                        const dcp_write_item *item, size_t item_size)
{
    dcp_write_item ours;
    struct write_item copy;
    RETURN_IF_ERROR(check_index(plan, index, item));
    RETURN_IF_ERROR(sized_read(&ours, sizeof ours, item, item_size, "dcp_write_item"));
    RETURN_IF_ERROR(copy_item(plan, &ours, &copy));
    plan->items[index] = copy;
    return DCP_OK;
}

dcp_status dcp_save_plan_add_sized(dcp_save_plan *plan, const dcp_write_item *item,
                                   size_t item_size)
{
    dcp_write_item ours;
    struct write_item copy;
    if (!plan || !item)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the save plan or the item to add is NULL");
    RETURN_IF_ERROR(sized_read(&ours, sizeof ours, item, item_size, "dcp_write_item"));
    RETURN_IF_ERROR(copy_item(plan, &ours, &copy));
    return save_plan_view_append(plan, &copy);
}

void dcp_save_plan_clear(dcp_save_plan *plan)
{
    if (plan)
        plan->count = 0;
}

dcp_state *dcp_save_plan_planner_data(dcp_save_plan *plan)
{
    return plan ? plan_data_dict(&plan->planner_data) : NULL;
}

dcp_state *dcp_save_plan_storage_data(dcp_save_plan *plan)
{
    return plan ? plan_data_dict(&plan->storage_data) : NULL;
}

dcp_status save_plan_view_append_data(const struct dcp_save_plan *plan, struct buffer *out)
{
    RETURN_IF_ERROR(plan_data_append(&plan->planner_data, "planner data of a save plan", out));
    return plan_data_append(&plan->storage_data, "storage data of a save plan", out);
}

dcp_status save_plan_view_read_data(struct dcp_save_plan *plan, struct reader *reader)
{
    RETURN_IF_ERROR(plan_data_read(&plan->planner_data, reader));
    return plan_data_read(&plan->storage_data, reader);
}
