/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/write_plan.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "state/name_part.h"

void save_plan_free(struct save_plan *plan)
{
    arena_free(&plan->arena);
    *plan = (struct save_plan){0};
}

void write_orders_free(struct write_orders *orders)
{
    arena_free(&orders->arena);
    *orders = (struct write_orders){0};
}

/* The box may be an item's own, or be gone when the orders are. */
static bool copy_box(struct arena *arena, const struct save_plan *plan, struct write_order *order)
{
    struct box box = order->box;
    size_t bytes = (size_t)box.ndim * sizeof *box.sizes;
    order->box = plan->items[order->item].box;
    if (!order->is_part)
        return true;
    order->box = (struct box){box.ndim, arena_copy(arena, box.offsets, bytes),
                              arena_copy(arena, box.sizes, bytes)};
    return order->box.offsets && order->box.sizes;
}

dcp_status write_orders_copy(const struct write_orders *orders, const struct save_plan *plan,
                             struct write_orders *copy)
{
    *copy = (struct write_orders){.file_count = orders->file_count};
    arena_init(&copy->arena, 0);
    copy->orders = arena_copy(&copy->arena, orders->orders, orders->count * sizeof *copy->orders);
    bool complete = copy->orders != NULL;
    for (; complete && copy->count < orders->count; copy->count++)
        complete = copy_box(&copy->arena, plan, &copy->orders[copy->count]);
    return complete ? DCP_OK
                    : error_no_memory(orders->count * sizeof *copy->orders, "orders of a rank");
}

void write_results_free(struct write_results *results)
{
    arena_free(&results->arena);
    *results = (struct write_results){0};
}

void shard_name(char name[SHARD_NAME_MAX], int rank, uint32_t file, uint32_t generation)
{
    if (generation == 0)
        snprintf(name, SHARD_NAME_MAX, "__%d_%" PRIu32 ".distcp", rank, file);
    else
        snprintf(name, SHARD_NAME_MAX, "__%d_%" PRIu32 ".g%" PRIu32 ".distcp", rank, file,
                 generation);
}

bool shard_name_parse(const char *name, int *rank, uint32_t *file, uint32_t *generation)
{
    uint64_t numbers[3] = {0, 0, 0};
    if (!name_take_text(&name, "__") || !name_take_number(&name, INT_MAX, &numbers[0]) ||
        !name_take_text(&name, "_") || !name_take_number(&name, UINT32_MAX, &numbers[1]))
        return false;
    if (name_take_text(&name, ".g") &&
        (!name_take_number(&name, UINT32_MAX, &numbers[2]) || numbers[2] == 0))
        return false;
    if (strcmp(name, ".distcp") != 0)
        return false;
    *rank = (int)numbers[0];
    *file = (uint32_t)numbers[1];
    *generation = (uint32_t)numbers[2];
    return true;
}
