/* SPDX-License-Identifier: BSD-3-Clause */
/* A central decision that no rank can make alone: what every rank holds is dealt out in turn. (The
 * library balances replicas by bytes by itself; this is how to do it otherwise.) */
#include "four_ranks.h"

#include <stdlib.h>
#include <string.h>

static bool is_replicated(const dcp_write_item *item)
{
    return strcmp(item->index.name, "model.weight") != 0;
}

/* Takes what is replicated out of a rank's plan; of the first rank's it is kept. */
static dcp_status take_out(dcp_save_plan *plan, dcp_write_item *taken, size_t *taken_count)
{
    size_t count = dcp_save_plan_count(plan), kept = 0;
    dcp_write_item *items = calloc(count + 1, sizeof *items);
    dcp_status status = DCP_OK;
    if (!items)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "items of a plan");
    for (size_t i = 0; i < count && status == DCP_OK; i++) {
        dcp_write_item item;
        status = dcp_save_plan_item(plan, i, &item);
        if (!is_replicated(&item))
            items[kept++] = item;
        else if (taken)
            taken[(*taken_count)++] = item;
    }
    dcp_save_plan_clear(plan);
    for (size_t i = 0; i < kept && status == DCP_OK; i++)
        status = dcp_save_plan_add(plan, &items[i]);
    free(items);
    return status;
}

static dcp_status create_global_plan(void *context, dcp_saving *saving, dcp_save_plan *const *plans,
                                     int plan_count)
{
    (void)context;
    size_t taken_count = 0;
    dcp_write_item *taken = calloc(dcp_save_plan_count(plans[0]) + 1, sizeof *taken);
    dcp_status status = DCP_OK;
    if (!taken)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "items of a plan");
    for (int rank = 0; rank < plan_count && status == DCP_OK; rank++)
        status = take_out(plans[rank], rank == 0 ? taken : NULL, &taken_count);
    for (size_t i = 0; i < taken_count && status == DCP_OK; i++)
        status = dcp_save_plan_add(plans[i % (size_t)plan_count], &taken[i]);
    free(taken);
    return status == DCP_OK ? dcp_save_default_create_global_plan(saving, plans, plan_count)
                            : status;
}

static dcp_status save(struct trainer *trainer)
{
    dcp_save_planner planner = {.size_of = sizeof planner,
                                .create_global_plan = create_global_plan};
    return save_state(trainer, (dcp_save_options){.planner = &planner});
}

int main(int argc, char **argv)
{
    return run_ranks(argc, argv, save, "");
}
