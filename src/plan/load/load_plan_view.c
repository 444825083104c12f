/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/load/load_plan_view.h"

#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"

enum { ITEMS_FIRST = 64 };

void load_plan_view_init(struct dcp_load_plan *plan)
{
    *plan = (struct dcp_load_plan){0};
    arena_init(&plan->arena, 0);
}

void load_plan_view_free(struct dcp_load_plan *plan)
{
    plan_data_free(&plan->planner_data);
    plan_data_free(&plan->storage_data);
    memory_release(plan->items);
    arena_free(&plan->arena);
    load_plan_view_init(plan);
}

static dcp_status reserve_one(struct dcp_load_plan *plan)
{
    if (plan->count < plan->capacity)
        return DCP_OK;
    size_t capacity = plan->capacity != 0 ? plan->capacity * 2 : ITEMS_FIRST;
    dcp_read_item *items = memory_reallocate_array(plan->items, capacity, sizeof *items);
    if (items == NULL)
        return error_no_memory(capacity * sizeof *items, "a load plan");
    plan->items = items;
    plan->capacity = capacity;
    return DCP_OK;
}

static dcp_status copy_numbers(struct dcp_load_plan *plan, int32_t ndim, const int64_t **numbers)
{
    static const int64_t none;
    size_t bytes = (size_t)ndim * sizeof **numbers;
    *numbers = ndim == 0 ? &none : arena_copy(&plan->arena, *numbers, bytes);
    return *numbers != NULL ? DCP_OK : error_no_memory(bytes, "an item of a load plan");
}

static dcp_status copy_index(struct dcp_load_plan *plan, bool is_tensor, dcp_item_index *index)
{
    size_t length = strlen(index->name);
    index->name = arena_copy_text(&plan->arena, index->name, length);
    if (index->name == NULL)
        return error_no_memory(length, "an item of a load plan");
    if (is_tensor)
        return copy_numbers(plan, index->ndim, &index->offsets);
    index->offsets = NULL;
    index->ndim = 0;
    return DCP_OK;
}

/* With copies of what it points to. */
static dcp_status own_item(struct dcp_load_plan *plan, dcp_read_item *item)
{
    RETURN_IF_ERROR(copy_index(plan, item->is_tensor, &item->destination));
    RETURN_IF_ERROR(copy_index(plan, item->is_tensor, &item->stored));
    if (!item->is_tensor) {
        item->destination_offsets = item->stored_offsets = item->lengths = NULL;
        return DCP_OK;
    }
    int32_t ndim = item->destination.ndim;
    RETURN_IF_ERROR(copy_numbers(plan, ndim, &item->destination_offsets));
    RETURN_IF_ERROR(copy_numbers(plan, ndim, &item->stored_offsets));
    return copy_numbers(plan, ndim, &item->lengths);
}

static bool numbers_are_sane(int32_t ndim, const int64_t *numbers)
{
    for (int32_t i = 0; i < ndim; i++)
        if (numbers == NULL || numbers[i] < 0)
            return false;
    return true;
}

static dcp_status check_item(const dcp_read_item *item)
{
    const char *name = item->destination.name, *stored = item->stored.name;
    if (name == NULL || stored == NULL || !utf8_is_valid(name, strlen(name)) ||
        !utf8_is_valid(stored, strlen(stored)))
        return dcp_error_set(DCP_ERR_ARGUMENT, "the name of an item to read is not valid UTF-8");
    if (!item->is_tensor)
        return DCP_OK;
    int32_t ndim = item->destination.ndim;
    if (ndim < 0 || ndim > DCP_MAX_DIMS || ndim != item->stored.ndim)
        return dcp_error_set(
            DCP_ERR_ARGUMENT,
            "an item to read of \"%s\" has %d dimensions in the checkpoint, but %d in the state",
            name, item->stored.ndim, ndim);
    if (!numbers_are_sane(ndim, item->destination.offsets) ||
        !numbers_are_sane(ndim, item->stored.offsets) ||
        !numbers_are_sane(ndim, item->destination_offsets) ||
        !numbers_are_sane(ndim, item->stored_offsets) || !numbers_are_sane(ndim, item->lengths))
        return dcp_error_set(
            DCP_ERR_ARGUMENT,
            "an item to read of \"%s\" has an offset or a length that is NULL or negative", name);
    return DCP_OK;
}

size_t dcp_load_plan_count(const dcp_load_plan *plan)
{
    return plan != NULL ? plan->count : 0;
}

static dcp_status check_place(const dcp_load_plan *plan, size_t index, const void *item)
{
    if (plan == NULL || item == NULL)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the load plan or the item is NULL");
    if (index >= plan->count)
        return dcp_error_set(DCP_ERR_ARGUMENT, "there is no item %zu: the load plan has %zu items",
                             index, plan->count);
    return DCP_OK;
}

dcp_status dcp_load_plan_item_sized(const dcp_load_plan *plan, size_t index, dcp_read_item *item,
                                    size_t item_size)
{
    RETURN_IF_ERROR(check_place(plan, index, item));
    sized_write(item, item_size, &plan->items[index], sizeof plan->items[index]);
    return DCP_OK;
}

dcp_status dcp_load_plan_set_item_sized(dcp_load_plan *plan, size_t index,
                                        const dcp_read_item *item, size_t item_size)
{
    dcp_read_item ours;
    RETURN_IF_ERROR(check_place(plan, index, item));
    RETURN_IF_ERROR(sized_read(&ours, sizeof ours, item, item_size, "dcp_read_item"));
    RETURN_IF_ERROR(check_item(&ours));
    RETURN_IF_ERROR(own_item(plan, &ours));
    plan->items[index] = ours;
    return DCP_OK;
}

dcp_status dcp_load_plan_add_sized(dcp_load_plan *plan, const dcp_read_item *item, size_t item_size)
{
    dcp_read_item ours;
    if (plan == NULL || item == NULL)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the load plan or the item is NULL");
    RETURN_IF_ERROR(sized_read(&ours, sizeof ours, item, item_size, "dcp_read_item"));
    RETURN_IF_ERROR(check_item(&ours));
    RETURN_IF_ERROR(reserve_one(plan));
    RETURN_IF_ERROR(own_item(plan, &ours));
    plan->items[plan->count++] = ours;
    return DCP_OK;
}

void dcp_load_plan_clear(dcp_load_plan *plan)
{
    if (plan != NULL)
        plan->count = 0;
}

dcp_state *dcp_load_plan_planner_data(dcp_load_plan *plan)
{
    return plan != NULL ? plan_data_dict(&plan->planner_data) : NULL;
}

dcp_state *dcp_load_plan_storage_data(dcp_load_plan *plan)
{
    return plan != NULL ? plan_data_dict(&plan->storage_data) : NULL;
}

/* The region's offsets, relative to its chunk or piece. */
static const int64_t *way_into(struct dcp_load_plan *plan, struct box region, const int64_t *begin)
{
    int64_t *way = arena_allocate_array(&plan->arena, (size_t)region.ndim, sizeof *region.offsets);
    for (int32_t i = 0; way != NULL && i < region.ndim; i++)
        way[i] = region.offsets[i] - begin[i];
    return way;
}

dcp_status load_plan_view_append(struct dcp_load_plan *plan, const struct flat_state *flat,
                                 const struct metadata *metadata, const struct load_plan *made)
{
    for (size_t i = 0; i < made->count; i++) {
        const struct read_item *from = &made->items[i];
        const struct flat_entry *wanted = &flat->entries[from->wanted];
        const struct metadata_entry *entry = &metadata->entries[from->entry];
        dcp_read_item item = {.destination.name = wanted->name,
                              .stored.name = entry->name,
                              .is_tensor = entry->is_tensor};
        if (entry->is_tensor) {
            const struct state_chunk *chunk = &wanted->node->as.tensor->chunks[from->chunk];
            const struct metadata_piece *piece = &entry->pieces[from->piece];
            item.destination.ndim = item.stored.ndim = entry->ndim;
            item.destination.offsets = chunk->offsets;
            item.stored.offsets = piece->offsets;
            item.destination_offsets = way_into(plan, from->region, chunk->offsets);
            item.stored_offsets = way_into(plan, from->region, piece->offsets);
            item.lengths = from->region.sizes;
            if (item.destination_offsets == NULL || item.stored_offsets == NULL)
                return error_no_memory((size_t)entry->ndim * sizeof(int64_t), "a load plan");
        }
        RETURN_IF_ERROR(dcp_load_plan_add_sized(plan, &item, sizeof item));
    }
    return DCP_OK;
}
