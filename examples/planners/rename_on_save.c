/* SPDX-License-Identifier: BSD-3-Clause */
/* Rename by prefix: another state is saved than the one that was given, with all of its keys behind
 * "foo_". The tensors' memory is borrowed: no element moves. */
#include "four_ranks.h"

#include <stdio.h>
#include <stdlib.h>

struct rename_planner {
    dcp_state *renamed; /* lives until the save has ended */
};

static dcp_status set_up(void *context, dcp_saving *saving, dcp_state *state,
                         const dcp_storage_meta *storage_meta, bool is_coordinator)
{
    struct rename_planner *planner = context;
    (void)storage_meta;
    (void)is_coordinator;
    planner->renamed = dcp_state_new();
    for (size_t i = 0; i < dcp_state_count(state); i++) {
        const char *key;
        size_t length;
        char name[256];
        dcp_status status = dcp_state_as_text(dcp_state_key_at(state, i), &key, &length);
        if (status != DCP_OK)
            return status;
        snprintf(name, sizeof name, "foo_%s", key);
        dcp_state_copy(planner->renamed, name, dcp_state_at(state, i));
    }
    return dcp_save_default_set_up_planner(saving, planner->renamed);
}

static dcp_status save(struct trainer *trainer)
{
    struct rename_planner renaming = {NULL};
    dcp_save_planner planner = {
        .size_of = sizeof planner, .context = &renaming, .set_up_planner = set_up};
    dcp_status status = save_state(trainer, (dcp_save_options){.planner = &planner});
    dcp_state_free(renaming.renamed);
    return status;
}

int main(int argc, char **argv)
{
    return run_ranks(argc, argv, save, "foo_");
}
