/* SPDX-License-Identifier: BSD-3-Clause */
/* Extra data of every rank in the metadata: while saving, each rank puts something into the planner
 * data of its plan, and the coordinator makes the metadata's of all of them. While loading, any
 * rank reads it before anything is planned; so does whoever just opens the checkpoint.
 *
 *     planner_data DIRECTORY
 */
#include <dcp.h>
#include <pthread.h>
#include <stdio.h>

enum { RANKS = 2 };

/* One rank, played by a thread. */
struct trainer {
    dcp_group *group;
    const char *path;
    dcp_state *merged; /* the coordinator's, until the save has ended */
    dcp_status status;
    char message[512];
    int64_t seen; /* while loading: what the last rank has said */
};

static dcp_status add_mine(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    const struct trainer *trainer = context;
    dcp_state *data = dcp_save_plan_planner_data(plan);
    dcp_status status = dcp_state_int(data, "samples", 100 + dcp_group_rank(trainer->group));
    return status == DCP_OK ? dcp_save_default_create_local_plan(saving, plan) : status;
}

static dcp_status merge(void *context, dcp_saving *saving, dcp_save_plan *const *plans, int count)
{
    struct trainer *trainer = context;
    trainer->merged = dcp_state_new();
    dcp_state *list = dcp_state_list(trainer->merged, "ranks");
    for (int rank = 0; rank < count; rank++)
        dcp_state_copy(list, NULL,
                       dcp_state_find(dcp_save_plan_planner_data(plans[rank]), "samples"));
    dcp_status status = dcp_state_status(trainer->merged);
    if (status == DCP_OK)
        status = dcp_saving_set_planner_data(saving, list);
    return status == DCP_OK ? dcp_save_default_create_global_plan(saving, plans, count) : status;
}

static dcp_status look(void *context, dcp_loading *loading, dcp_state *state,
                       const dcp_checkpoint *metadata, bool is_coordinator)
{
    struct trainer *trainer = context;
    (void)is_coordinator;
    const dcp_state *ranks = dcp_checkpoint_planner_data(metadata);
    dcp_status status = dcp_state_as_int(dcp_state_at(ranks, RANKS - 1), &trainer->seen);
    return status == DCP_OK ? dcp_load_default_set_up_planner(loading, state) : status;
}

static dcp_status save(struct trainer *trainer, dcp_state *state)
{
    const dcp_save_planner planner = {.size_of = sizeof planner,
                                      .context = trainer,
                                      .create_local_plan = add_mine,
                                      .create_global_plan = merge};
    const dcp_save_options options = {
        .group = trainer->group, .overwrite = DCP_OVERWRITE_REPLACE, .planner = &planner};
    dcp_status status = dcp_save(state, trainer->path, &options);
    dcp_state_free(trainer->merged);
    return status;
}

static dcp_status load(struct trainer *trainer, dcp_state *state)
{
    const dcp_load_planner planner = {
        .size_of = sizeof planner, .context = trainer, .set_up_planner = look};
    const dcp_load_options options = {.group = trainer->group, .planner = &planner};
    return dcp_load(state, trainer->path, &options, NULL);
}

static void *run(void *argument)
{
    struct trainer *trainer = argument;
    dcp_state *state = dcp_state_new();
    dcp_state_int(state, "step", 1000);
    trainer->status = save(trainer, state);
    if (trainer->status == DCP_OK)
        trainer->status = load(trainer, state);
    snprintf(trainer->message, sizeof trainer->message, "%s", dcp_error_message());
    dcp_state_free(state);
    return NULL;
}

int main(int argc, char **argv)
{
    struct trainer trainers[RANKS] = {{.seen = 0}};
    dcp_group *groups[RANKS];
    pthread_t threads[RANKS];
    int failures = 0;
    if (dcp_group_new_threads(RANKS, groups) != DCP_OK)
        return 1;
    for (int r = 0; r < RANKS; r++) {
        trainers[r].group = groups[r];
        trainers[r].path = argc > 1 ? argv[1] : "planner_data.checkpoint";
        if (pthread_create(&threads[r], NULL, run, &trainers[r]) != 0)
            return 1;
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(threads[r], NULL);
        dcp_group_free(groups[r]);
        printf("rank %d: %s, the last rank had %d samples %s\n", r,
               dcp_status_string(trainers[r].status), (int)trainers[r].seen, trainers[r].message);
        failures += trainers[r].status != DCP_OK || trainers[r].seen != 100 + RANKS - 1;
    }
    return failures == 0 ? 0 : 1;
}
