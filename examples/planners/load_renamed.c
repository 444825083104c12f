/* SPDX-License-Identifier: BSD-3-Clause */
/* Renaming on load: a checkpoint that was saved under names with the prefix "foo_" is loaded into a
 * state without it, by a planner that sets itself up with other names and leaves all else to the
 * library. (For rules that are plain data, dcp_load_options::renames does without a planner.)
 *
 *     load_renamed DIRECTORY
 */
#include <dcp.h>
#include <stdio.h>
#include <string.h>

#define PREFIX "foo_"

static dcp_status set_up_renamed(void *context, dcp_loading *loading, dcp_state *state,
                                 const dcp_checkpoint *metadata, bool is_coordinator)
{
    (void)context, (void)metadata, (void)is_coordinator;
    dcp_status status = dcp_load_default_set_up_planner(loading, state);
    for (size_t i = 0; status == DCP_OK && i < dcp_loading_name_count(loading); i++) {
        char stored[256];
        const char *name = dcp_loading_name(loading, i);
        snprintf(stored, sizeof stored, PREFIX "%s", name);
        status = dcp_loading_rename(loading, name, stored);
    }
    return status;
}

static dcp_status save_prefixed(const char *path)
{
    float weight[] = {1, 2, 3, 4};
    const dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .data = weight, .global_shape = {4}};
    const dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE};
    dcp_state *state = dcp_state_new();
    dcp_state_tensor(state, PREFIX "weight", &tensor);
    dcp_state_int(state, PREFIX "step", 1000);
    dcp_status status = dcp_save(state, path, &options);
    dcp_state_free(state);
    return status;
}

static dcp_status load_without_prefix(const char *path)
{
    float weight[4] = {0};
    int64_t step = 0;
    const dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .data = weight, .global_shape = {4}};
    const dcp_load_planner planner = {.size_of = sizeof planner, .set_up_planner = set_up_renamed};
    const dcp_load_options options = {.planner = &planner};
    dcp_state *state = dcp_state_new();
    dcp_state_tensor(state, "weight", &tensor);
    dcp_state_int(state, "step", 0);
    dcp_status status = dcp_load(state, path, &options, NULL);
    if (status == DCP_OK)
        status = dcp_state_as_int(dcp_state_find(state, "step"), &step);
    dcp_state_free(state);
    if (status == DCP_OK && (step != 1000 || weight[3] != 4))
        return dcp_error_set(DCP_ERR_INTERNAL, "step %d, last weight %g", (int)step,
                             (double)weight[3]);
    return status;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "renamed.checkpoint";
    if (save_prefixed(path) != DCP_OK || load_without_prefix(path) != DCP_OK) {
        fprintf(stderr, "%s\n", dcp_error_message());
        return 1;
    }
    printf("loaded \"weight\" and \"step\" from \"" PREFIX "weight\" and \"" PREFIX "step\"\n");
    return 0;
}
