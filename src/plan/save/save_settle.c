/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks plans that a custom planner may have changed against what the ranks hold, and makes orders
 * of them. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "plan/save/save_plan.h"

enum { BOX_TEXT = 256, NO_ITEM = UINT32_MAX };

/* The items that a rank holds, by name. */
struct held_index {
    struct name_table names; /* -> the first item of that name */
    uint32_t *next;          /* per item: the next one of its name */
};

static dcp_status index_init(struct held_index *index, const struct save_plan *held)
{
    name_table_init(&index->names);
    index->next = memory_allocate_array(held->count, sizeof *index->next);
    if (index->next == NULL)
        return error_no_memory(held->count * sizeof *index->next, "items by name");
    for (size_t i = held->count; i-- > 0;) {
        const char *name = held->items[i].name;
        uint64_t first = i;
        bool existing;
        RETURN_IF_ERROR(name_table_add(&index->names, name, strlen(name), &first, &existing));
        index->next[i] = NO_ITEM;
        if (existing) {
            index->next[i] = index->next[first];
            index->next[first] = (uint32_t)i;
        }
    }
    return DCP_OK;
}

static void index_free(struct held_index *index)
{
    name_table_free(&index->names);
    memory_release(index->next);
}

static bool is_alike(const struct write_item *a, const struct write_item *b)
{
    if (a->is_tensor != b->is_tensor)
        return false;
    return !a->is_tensor ||
           (a->dtype == b->dtype &&
            box_equal(box_whole(a->ndim, a->global_shape), box_whole(b->ndim, b->global_shape)));
}

static dcp_status refuse(const struct write_item *item, int rank)
{
    char box[BOX_TEXT];
    if (!item->is_tensor)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "the global plan has rank %d write the object \"%s\", which is not in "
                             "that rank's local plan",
                             rank, item->name);
    return dcp_error_set(DCP_ERR_ARGUMENT,
                         "the global plan has rank %d write %s of \"%s\" as %s, which is not in "
                         "that rank's local plan",
                         rank, box_format(item->box, box, sizeof box), item->name,
                         dcp_dtype_name(item->dtype));
}

/* Finds the held item that another item equals, or is a part of. */
static dcp_status find_held(const struct save_plan *held, const struct held_index *index,
                            const struct write_item *item, int rank, uint32_t *found)
{
    uint64_t first;
    if (!name_table_find(&index->names, item->name, strlen(item->name), &first))
        return refuse(item, rank);
    for (*found = (uint32_t)first; *found != NO_ITEM; *found = index->next[*found]) {
        const struct write_item *candidate = &held->items[*found];
        if (is_alike(item, candidate) &&
            (!item->is_tensor || write_item_offers(candidate, item->box)))
            return DCP_OK;
    }
    return refuse(item, rank);
}

/* numbers: for each item of the rank's global plan, the number of the held item. */
static dcp_status check_rank(const struct save_plan *held, struct save_plan *dealt, int rank,
                             uint32_t **numbers)
{
    struct held_index index = {0};
    *numbers = memory_allocate_array(dealt->count, sizeof **numbers);
    if (*numbers == NULL)
        return error_no_memory(dealt->count * sizeof **numbers, "items of a rank");
    dcp_status status = index_init(&index, held);
    for (size_t i = 0; i < dealt->count && status == DCP_OK; i++) {
        status = find_held(held, &index, &dealt->items[i], rank, &(*numbers)[i]);
        if (status == DCP_OK)
            dealt->items[i].object_length = held->items[(*numbers)[i]].object_length;
    }
    index_free(&index);
    return status;
}

/* At this point, replicas of an object are an error. */
static dcp_status check_objects(const struct save_plan *dealt, int rank_count)
{
    struct name_table names;
    dcp_status status = DCP_OK;
    name_table_init(&names);
    for (int rank = 0; rank < rank_count; rank++)
        for (size_t i = 0; i < dealt[rank].count && status == DCP_OK; i++) {
            const char *name = dealt[rank].items[i].name;
            uint64_t writer = (uint64_t)rank;
            bool existing = false;
            if (!dealt[rank].items[i].is_tensor)
                status = name_table_add(&names, name, strlen(name), &writer, &existing);
            if (existing)
                status = dcp_error_set(DCP_ERR_DUPLICATE,
                                       "\"%s\": rank %d and rank %d would both write it", name,
                                       (int)writer, rank);
        }
    name_table_free(&names);
    return status;
}

static void refer_to_held(struct write_order *order, const uint32_t *numbers,
                          const struct save_plan *held)
{
    order->item = numbers[order->item];
    const struct write_item *item = &held->items[order->item];
    order->is_part = item->is_tensor && !box_equal(order->box, item->box);
}

dcp_status save_plan_settle(const struct save_plan *held, struct save_plan *dealt, int rank_count,
                            const struct save_plan_options *options, uint32_t generation,
                            struct write_orders *orders, struct metadata *metadata)
{
    struct save_plan_options settled = *options;
    settled.settled = true;
    metadata_init(metadata);
    uint32_t **numbers = memory_allocate_zeroed((size_t)rank_count, sizeof(*numbers));
    if (numbers == NULL)
        return error_no_memory((size_t)rank_count * sizeof(*numbers), "items of all ranks");
    dcp_status status = DCP_OK;
    for (int rank = 0; rank < rank_count && status == DCP_OK; rank++)
        status = check_rank(&held[rank], &dealt[rank], rank, &numbers[rank]);
    if (status == DCP_OK)
        status = check_objects(dealt, rank_count);
    if (status == DCP_OK)
        status = save_plan_merge(dealt, rank_count, &settled, generation, orders, metadata);
    for (int rank = 0; rank < rank_count; rank++) {
        for (size_t i = 0; i < orders[rank].count; i++)
            refer_to_held(&orders[rank].orders[i], numbers[rank], &held[rank]);
        memory_release(numbers[rank]);
    }
    memory_release(numbers);
    return status;
}

bool write_item_offers(const struct write_item *item, struct box box)
{
    if (!box_check(box, item->global_shape))
        return false;
    if (box_volume(box) == 0)
        return true;
    for (int32_t i = 0; i < box.ndim; i++) {
        int64_t start = item->box.offsets[i];
        if (box.offsets[i] < start || box.offsets[i] + box.sizes[i] > start + item->box.sizes[i])
            return false;
    }
    return true;
}
