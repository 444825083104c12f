/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/async_model.h"

#include <pthread.h>
#include <stdlib.h>

static float value_of(int64_t row, int64_t column, int64_t step)
{
    return (float)(row * 3 + column * 7 + step * 1000);
}

void fill(struct model *model, int64_t step)
{
    for (int64_t i = 0; i < model->rows; i++)
        for (int64_t j = 0; j < COLUMNS; j++)
            model->shard[i * COLUMNS + j] = value_of(model->first + i, j, step);
    for (int64_t j = 0; j < COLUMNS; j++)
        model->replica[j] = value_of(-1, j, step);
}

void make_model(struct model *model, int rank, int size, int64_t step)
{
    model->first = (int64_t)ROWS * rank / size;
    model->rows = (int64_t)ROWS * (rank + 1) / size - model->first;
    model->shard = malloc((size_t)(model->rows * COLUMNS) * sizeof(float));
    fill(model, step);
}

dcp_state *tree_of(struct model *model, int64_t step)
{
    dcp_tensor shard = {.dtype = DCP_F32,
                        .ndim = 2,
                        .global_shape = {ROWS, COLUMNS},
                        .sharded = true,
                        .offsets = {model->first, 0},
                        .sizes = {model->rows, COLUMNS},
                        .data = model->shard};
    dcp_tensor replica = {
        .dtype = DCP_F32, .ndim = 1, .global_shape = {COLUMNS}, .data = model->replica};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(dcp_state_dict(root, "model"), "w", &shard);
    dcp_state_tensor(dcp_state_find(root, "model"), "bias", &replica);
    dcp_state_int(root, "step", step);
    return root;
}

/* Whether the checkpoint holds what a step had. */
dcp_status check(const char *path, int64_t step)
{
    struct model all = {.first = 0, .rows = ROWS};
    int64_t found = -1;
    all.shard = calloc((size_t)ROWS * COLUMNS, sizeof(float));
    dcp_state *root = tree_of(&all, 0);
    dcp_status status = dcp_load(root, path, NULL, NULL);
    dcp_state_as_int(dcp_state_find(root, "step"), &found);
    if (status == DCP_OK && found != step)
        status = dcp_error_set(DCP_ERR_INTERNAL, "step %d instead of %d", (int)found, (int)step);
    for (int64_t i = 0; i < ROWS && status == DCP_OK; i++)
        for (int64_t j = 0; j < COLUMNS && status == DCP_OK; j++)
            if (all.shard[i * COLUMNS + j] != value_of(i, j, step) ||
                all.replica[j] != value_of(-1, j, step))
                status = dcp_error_set(DCP_ERR_INTERNAL, "another value at %d, %d", (int)i, (int)j);
    dcp_state_free(root);
    free(all.shard);
    return status;
}

dcp_status begin(struct model *model, int64_t step, const char *path,
                 const dcp_save_options *options, dcp_future **future)
{
    dcp_state *root = tree_of(model, step);
    dcp_status status = dcp_save_async(root, path, options, future);
    dcp_state_free(root);
    return status;
}

struct slow {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool held;
};

static struct slow slow = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};

void hold(bool held)
{
    pthread_mutex_lock(&slow.mutex);
    slow.held = held;
    pthread_cond_broadcast(&slow.changed);
    pthread_mutex_unlock(&slow.mutex);
}

/* A progress function that keeps the writing thread until it is let go. */
bool wait_while_held(void *context, const dcp_progress *progress)
{
    (void)context;
    pthread_mutex_lock(&slow.mutex);
    while (slow.held && progress->phase == DCP_PHASE_WRITING)
        pthread_cond_wait(&slow.changed, &slow.mutex);
    pthread_mutex_unlock(&slow.mutex);
    return true;
}
