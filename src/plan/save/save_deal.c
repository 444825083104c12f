/* SPDX-License-Identifier: BSD-3-Clause */
/* Turns a merge's decisions into plans again, to be shown to custom planners. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "plan/save/save_plan.h"

static int compare_orders(const void *left, const void *right)
{
    const struct write_order *a = left, *b = right;
    if (a->item != b->item)
        return a->item < b->item ? -1 : 1;
    for (int32_t i = 0; i < a->box.ndim; i++)
        if (a->box.offsets[i] != b->box.offsets[i])
            return a->box.offsets[i] < b->box.offsets[i] ? -1 : 1;
    return 0;
}

/* The box lives in the orders, which the plan outlives. */
static dcp_status copy_box(struct arena *arena, struct box from, struct box *to)
{
    size_t ndim = (size_t)from.ndim;
    int64_t *numbers = arena_allocate_array(arena, 2 * ndim, sizeof *numbers);
    if (numbers == NULL)
        return error_no_memory(2 * ndim * sizeof *numbers, "a save plan");
    for (size_t i = 0; i < ndim; i++) {
        numbers[i] = from.offsets[i];
        numbers[ndim + i] = from.sizes[i];
    }
    *to = (struct box){from.ndim, numbers, numbers + ndim};
    return DCP_OK;
}

/* In the order of the rank's own plan. */
static dcp_status make_plan(const struct save_plan *plan, struct write_orders *orders,
                            struct save_plan *dealt)
{
    if (orders->count > 1)
        qsort(orders->orders, orders->count, sizeof *orders->orders, compare_orders);
    dealt->items = arena_allocate_array(&dealt->arena, orders->count, sizeof *dealt->items);
    if (dealt->items == NULL)
        return error_no_memory(orders->count * sizeof *dealt->items, "a save plan");
    for (size_t i = 0; i < orders->count; i++) {
        struct write_item *item = &dealt->items[dealt->count++];
        *item = plan->items[orders->orders[i].item];
        if (item->is_tensor)
            RETURN_IF_ERROR(copy_box(&dealt->arena, orders->orders[i].box, &item->box));
    }
    return DCP_OK;
}

dcp_status save_plan_deal(const struct save_plan *plans, int rank_count,
                          const struct save_plan_options *options, struct save_plan *dealt)
{
    struct metadata metadata;
    for (int rank = 0; rank < rank_count; rank++) {
        dealt[rank] = (struct save_plan){0};
        arena_init(&dealt[rank].arena, 0);
    }
    struct write_orders *orders = memory_allocate_zeroed((size_t)rank_count, sizeof *orders);
    if (orders == NULL)
        return error_no_memory((size_t)rank_count * sizeof *orders, "write orders");
    dcp_status status = save_plan_merge(plans, rank_count, options, 0, orders, &metadata);
    for (int rank = 0; rank < rank_count && status == DCP_OK; rank++)
        status = make_plan(&plans[rank], &orders[rank], &dealt[rank]);
    for (int rank = 0; rank < rank_count; rank++)
        write_orders_free(&orders[rank]);
    metadata_free(&metadata);
    memory_release(orders);
    return status;
}
