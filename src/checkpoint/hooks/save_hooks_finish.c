/* SPDX-License-Identifier: BSD-3-Clause */
/* The finished plan: an item for each order. finish_plan may reorder items, but not change what
 * metadata and orders already say. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/hooks/save_hooks.h"
#include "checkpoint/save/saving.h"

/* An item and where it is in its list. */
struct placed_item {
    const struct write_item *item;
    size_t position;
};

static int compare_numbers(const int64_t *left, const int64_t *right, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        if (left[i] != right[i])
            return left[i] < right[i] ? -1 : 1;
    return 0;
}

/* Compares items by what identifies the item of an order: name and box. */
static int compare_items(const struct write_item *left, const struct write_item *right)
{
    int order = strcmp(left->name, right->name);
    if (order != 0)
        return order;
    if (left->is_tensor != right->is_tensor)
        return left->is_tensor ? 1 : -1;
    if (!left->is_tensor)
        return 0;
    if (left->ndim != right->ndim)
        return left->ndim < right->ndim ? -1 : 1;
    order = compare_numbers(left->box.offsets, right->box.offsets, left->ndim);
    return order != 0 ? order : compare_numbers(left->box.sizes, right->box.sizes, left->ndim);
}

static int compare_placed(const void *left, const void *right)
{
    const struct placed_item *a = left, *b = right;
    int order = compare_items(a->item, b->item);
    return order != 0 ? order : (a->position > b->position) - (a->position < b->position);
}

static struct placed_item *sort_items(const struct write_item *items, size_t count)
{
    struct placed_item *placed = memory_allocate_array(count, sizeof *placed);
    for (size_t i = 0; placed && i < count; i++)
        placed[i] = (struct placed_item){&items[i], i};
    if (placed && count > 1)
        qsort(placed, count, sizeof *placed, compare_placed);
    return placed;
}

static const char *changed_field(const struct write_item *from, const struct write_item *to)
{
    if (to->entry != ENTRY_NONE && (to->entry != from->entry || to->chunk != from->chunk))
        return "source";
    if (!from->is_tensor)
        return to->object_length == from->object_length ? NULL : "object_length";
    if (to->dtype != from->dtype)
        return "dtype";
    if (to->requires_grad != from->requires_grad)
        return "requires_grad";
    return compare_numbers(from->global_shape, to->global_shape, from->ndim) != 0 ? "global_shape"
                                                                                  : NULL;
}

/* Checks that both lists have the same items, each once. */
static dcp_status match(const struct placed_item *dealt, size_t dealt_count,
                        const struct placed_item *given, size_t given_count)
{
    for (size_t i = 0; i < dealt_count || i < given_count; i++) {
        int order = i == dealt_count   ? 1
                    : i == given_count ? -1
                                       : compare_items(dealt[i].item, given[i].item);
        if (order < 0)
            return dcp_error_set(
                DCP_ERR_ARGUMENT,
                "hook finish_plan has removed an item of \"%.200s\" that is in the metadata of the "
                "checkpoint: remove it in create_local_plan or create_global_plan",
                dealt[i].item->name);
        if (order > 0)
            return dcp_error_set(DCP_ERR_ARGUMENT,
                                 "hook finish_plan has added an item of \"%.200s\" that is not in "
                                 "the metadata of the checkpoint: add it in create_local_plan",
                                 given[i].item->name);
        const char *field = changed_field(dealt[i].item, given[i].item);
        if (field)
            return dcp_error_set(DCP_ERR_ARGUMENT,
                                 "hook finish_plan has changed the %s of an item of \"%.200s\", "
                                 "which is too late: change it in create_local_plan",
                                 field, given[i].item->name);
    }
    return DCP_OK;
}

/* Restores each item, in its new position. */
static dcp_status settle(struct save_hooks *hooks, const struct placed_item *dealt,
                         size_t dealt_count, const struct placed_item *given)
{
    struct dcp_save_plan *plan = &hooks->finished;
    RETURN_IF_ERROR(match(dealt, dealt_count, given, plan->count));
    hooks->order_of = memory_allocate_array(dealt_count, sizeof *hooks->order_of);
    if (!hooks->order_of)
        return error_no_memory(dealt_count * sizeof *hooks->order_of, "a finished save plan");
    for (size_t i = 0; i < dealt_count; i++) {
        plan->items[given[i].position] = *dealt[i].item;
        hooks->order_of[given[i].position] = dealt[i].position;
    }
    return DCP_OK;
}

static dcp_status call_finish_plan(dcp_saving *saving)
{
    struct save_hooks *hooks = saving->hooks;
    const dcp_save_planner *planner = &hooks->planner;
    size_t count = hooks->finished.count;
    struct write_item *items = memory_allocate_array(count, sizeof *items);
    if (!items)
        return error_no_memory(count * sizeof *items, "a finished save plan");
    if (count > 0)
        memcpy(items, hooks->finished.items, count * sizeof *items);
    error_clear();
    dcp_status status = hook_status(
        planner->finish_plan(planner->context, saving, &hooks->finished), "finish_plan");
    struct placed_item *dealt = NULL, *given = NULL;
    if (status == DCP_OK) {
        dealt = sort_items(items, count);
        given = sort_items(hooks->finished.items, hooks->finished.count);
        status = dealt && given ? settle(hooks, dealt, count, given)
                                : error_no_memory(count * sizeof *dealt, "a finished save plan");
    }
    memory_release(given);
    memory_release(dealt);
    memory_release(items);
    return status;
}

dcp_status save_hooks_finish_plan(dcp_saving *saving)
{
    struct save_hooks *hooks = saving->hooks;
    const struct write_orders *orders = &saving->orders;
    hooks->finished.has_sources = true;
    for (size_t i = 0; i < orders->count; i++) {
        struct write_item item = hooks->plan.items[orders->orders[i].item];
        item.box = orders->orders[i].box;
        RETURN_IF_ERROR(save_plan_view_append(&hooks->finished, &item));
    }
    return hooks->planner.finish_plan ? call_finish_plan(saving) : DCP_OK;
}
