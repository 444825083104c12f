/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/write_plan.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

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
