/* SPDX-License-Identifier: BSD-3-Clause */
#include "four_ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct job {
    struct trainer trainer;
    dcp_status (*save)(struct trainer *trainer);
    dcp_status status;
};

static float weight_at(int row, int column)
{
    return (float)(10 * row + column);
}

static void build(struct trainer *trainer)
{
    int first = trainer->rank * (ROWS / RANKS);
    dcp_tensor weight = {.dtype = DCP_F32,
                         .ndim = 2,
                         .sharded = true,
                         .data = trainer->weight,
                         .global_shape = {ROWS, COLUMNS},
                         .offsets = {first, 0},
                         .sizes = {ROWS / RANKS, COLUMNS}};
    dcp_tensor bias = {
        .dtype = DCP_F32, .ndim = 1, .data = trainer->bias, .global_shape = {COLUMNS}};
    for (int column = 0; column < COLUMNS; column++) {
        for (int row = 0; row < ROWS / RANKS; row++)
            trainer->weight[row][column] = weight_at(first + row, column);
        trainer->bias[column] = 0.5f * (float)column;
    }
    trainer->state = dcp_state_new();
    dcp_state *model = dcp_state_dict(trainer->state, "model");
    dcp_state_tensor(model, "weight", &weight);
    dcp_state_tensor(model, "bias", &bias);
    dcp_state_int(dcp_state_dict(trainer->state, "train"), "step", 1000);
}

/* Tensors change as soon as they may. */
static dcp_status save_behind(struct trainer *trainer, const dcp_save_options *options)
{
    dcp_future *future;
    dcp_status status = dcp_save_async(trainer->state, trainer->path, options, &future);
    if (status != DCP_OK)
        return status;
    memset(trainer->weight, 0, sizeof trainer->weight);
    memset(trainer->bias, 0, sizeof trainer->bias);
    status = dcp_future_wait(future, -1);
    dcp_future_free(future);
    return status;
}

dcp_status save_state(struct trainer *trainer, dcp_save_options options)
{
    options.group = trainer->group;
    options.overwrite = DCP_OVERWRITE_REPLACE;
    return trainer->behind ? save_behind(trainer, &options)
                           : dcp_save(trainer->state, trainer->path, &options);
}

static void *run_rank(void *argument)
{
    struct job *job = argument;
    build(&job->trainer);
    job->status = job->save(&job->trainer);
    if (job->status != DCP_OK)
        fprintf(stderr, "rank %d: %s\n", job->trainer.rank, dcp_error_message());
    dcp_state_free(job->trainer.state);
    dcp_group_free(job->trainer.group);
    return NULL;
}

/* The values are those that were saved, under names with a prefix, and float32 again if they are
 * stored as something else. */
static int check(const char *path, const char *prefix)
{
    float weight[ROWS][COLUMNS], bias[COLUMNS];
    char name[64];
    int64_t step = 0;
    dcp_tensor whole = {
        .dtype = DCP_F32, .ndim = 2, .data = weight, .global_shape = {ROWS, COLUMNS}};
    dcp_tensor other = {.dtype = DCP_F32, .ndim = 1, .data = bias, .global_shape = {COLUMNS}};
    dcp_state *state = dcp_state_new();
    snprintf(name, sizeof name, "%smodel", prefix);
    dcp_state *model = dcp_state_dict(state, name);
    dcp_state_tensor(model, "weight", &whole);
    dcp_state_tensor(model, "bias", &other);
    snprintf(name, sizeof name, "%strain", prefix);
    dcp_state *train = dcp_state_dict(state, name);
    dcp_state_int(train, "step", 0);
    dcp_status status = dcp_load(state, path, &(dcp_load_options){.convert = true}, NULL);
    if (status == DCP_OK)
        status = dcp_state_as_int(dcp_state_find(train, "step"), &step);
    if (status != DCP_OK)
        fprintf(stderr, "loading %s: %s\n", path, dcp_error_message());
    int wrong = status != DCP_OK || step != 1000;
    for (int column = 0; column < COLUMNS && !wrong; column++) {
        wrong = bias[column] != 0.5f * (float)column;
        for (int row = 0; row < ROWS && !wrong; row++)
            wrong = weight[row][column] != weight_at(row, column);
    }
    dcp_state_free(state);
    return wrong;
}

int run_ranks(int argc, char **argv, dcp_status (*save)(struct trainer *trainer),
              const char *prefix)
{
    bool behind = argc == 3 && strcmp(argv[2], "async") == 0;
    const char *path = argv[1];
    pthread_t threads[RANKS];
    struct job jobs[RANKS];
    dcp_group *groups[RANKS];
    int failed = 0;
    if (argc != 2 && !behind) {
        fprintf(stderr, "usage: %s DIRECTORY [async]\n", argv[0]);
        return EXIT_FAILURE;
    }
    if (dcp_group_new_threads(RANKS, groups) != DCP_OK) {
        fprintf(stderr, "%s\n", dcp_error_message());
        return EXIT_FAILURE;
    }
    for (int rank = 0; rank < RANKS; rank++) {
        jobs[rank] = (struct job){
            .trainer = {.group = groups[rank], .rank = rank, .path = path, .behind = behind},
            .save = save};
        if (pthread_create(&threads[rank], NULL, run_rank, &jobs[rank]) != 0)
            abort();
    }
    for (int rank = 0; rank < RANKS; rank++) {
        pthread_join(threads[rank], NULL);
        failed |= jobs[rank].status != DCP_OK;
    }
    if (failed || check(path, prefix)) {
        fprintf(stderr, "%s is not what was saved\n", path);
        return EXIT_FAILURE;
    }
    printf("saved by %d ranks and loaded by one: %s\n", RANKS, path);
    return EXIT_SUCCESS;
}
