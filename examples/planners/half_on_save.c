/* SPDX-License-Identifier: BSD-3-Clause */
/* Cast while saving: the local plan says that tensors are float16. Elements are converted as they
 * are written, in blocks, whatever the size of the tensor and wherever it is. */
#include "four_ranks.h"

#include <stdlib.h>

static dcp_status create_local_plan(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)context;
    dcp_status status = dcp_save_default_create_local_plan(saving, plan);
    for (size_t i = 0; i < dcp_save_plan_count(plan) && status == DCP_OK; i++) {
        dcp_write_item item;
        status = dcp_save_plan_item(plan, i, &item);
        if (status != DCP_OK || !item.is_tensor)
            continue;
        item.dtype = DCP_F16;
        status = dcp_save_plan_set_item(plan, i, &item);
    }
    return status;
}

static dcp_status save(struct trainer *trainer)
{
    dcp_save_planner planner = {.size_of = sizeof planner, .create_local_plan = create_local_plan};
    return save_state(trainer, (dcp_save_options){.planner = &planner});
}

int main(int argc, char **argv)
{
    return run_ranks(argc, argv, save, "");
}
