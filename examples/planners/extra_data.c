/* SPDX-License-Identifier: BSD-3-Clause */
/* More metadata: each rank adds data to its local plan, and the coordinator collects it, as the
 * planner data of the checkpoint. */
#include "four_ranks.h"

#include <stdio.h>
#include <stdlib.h>

static dcp_status create_local_plan(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    const struct trainer *trainer = context;
    char text[64];
    snprintf(text, sizeof text, "per-rank-data of rank %d", trainer->rank);
    dcp_status status = dcp_save_default_create_local_plan(saving, plan);
    return status == DCP_OK ? dcp_state_string(dcp_save_plan_planner_data(plan), "sent", text)
                            : status;
}

static dcp_status create_global_plan(void *context, dcp_saving *saving, dcp_save_plan *const *plans,
                                     int plan_count)
{
    (void)context;
    dcp_status status = dcp_save_default_create_global_plan(saving, plans, plan_count);
    dcp_state *root = dcp_state_new();
    dcp_state *merged = dcp_state_list(root, "merged");
    for (int rank = 0; rank < plan_count; rank++)
        dcp_state_copy(merged, NULL,
                       dcp_state_find(dcp_save_plan_planner_data(plans[rank]), "sent"));
    if (status == DCP_OK)
        status = dcp_saving_set_planner_data(saving, merged);
    dcp_state_free(root);
    return status;
}

static dcp_status save(struct trainer *trainer)
{
    dcp_save_planner planner = {.size_of = sizeof planner,
                                .context = trainer,
                                .create_local_plan = create_local_plan,
                                .create_global_plan = create_global_plan};
    return save_state(trainer, (dcp_save_options){.planner = &planner});
}

/* What any process finds there. */
static int show(const char *path)
{
    dcp_checkpoint *checkpoint;
    char *text;
    dcp_status status = dcp_checkpoint_open(path, NULL, &checkpoint);
    if (status != DCP_OK)
        return EXIT_FAILURE;
    status = dcp_state_to_json(dcp_checkpoint_planner_data(checkpoint), 0, &text);
    if (status == DCP_OK) {
        printf("%s\n", text);
        dcp_text_free(text);
    }
    dcp_checkpoint_close(checkpoint);
    return status == DCP_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    if (run_ranks(argc, argv, save, "") != EXIT_SUCCESS)
        return EXIT_FAILURE;
    return show(argv[1]);
}
