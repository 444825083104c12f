/* SPDX-License-Identifier: BSD-3-Clause */
/* What of a training run goes into its checkpoints: the same tree describes it for saving and for
 * loading. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "training.h"

static dcp_status schedule_save(void *context, dcp_state *into)
{
    const struct schedule *schedule = context;

    dcp_state_int(into, "step", schedule->step);
    dcp_state_float(into, "base_rate", schedule->base_rate);
    return dcp_state_float(into, "rate", schedule->rate);
}

static dcp_status schedule_load(void *context, const dcp_state *filled)
{
    struct schedule *schedule = context;
    dcp_status status = dcp_state_as_int(dcp_state_find(filled, "step"), &schedule->step);

    if (status == DCP_OK)
        status = dcp_state_as_float(dcp_state_find(filled, "base_rate"), &schedule->base_rate);
    if (status == DCP_OK)
        status = dcp_state_as_float(dcp_state_find(filled, "rate"), &schedule->rate);
    return status;
}

static dcp_status data_save(void *context, dcp_state *into)
{
    const struct spirals *data = context;

    dcp_state_uint(into, "random_state", data->random_state);
    return dcp_state_int(into, "samples_seen", data->samples_seen);
}

static dcp_status data_load(void *context, const dcp_state *filled)
{
    struct spirals *data = context;
    dcp_status status =
        dcp_state_as_uint(dcp_state_find(filled, "random_state"), &data->random_state);

    if (status == DCP_OK)
        status = dcp_state_as_int(dcp_state_find(filled, "samples_seen"), &data->samples_seen);
    return status;
}

static void add_rows(dcp_state *parent, const char *key, const dcp_tensor *chunk, float *rows)
{
    dcp_tensor tensor = *chunk;

    tensor.data = rows;
    dcp_state_tensor(parent, key, &tensor);
}

/* Failures stick to the tree, and the save or load tells of them. */
static dcp_state *training_state(struct training *training)
{
    dcp_state *root = dcp_state_new();
    dcp_state *model = dcp_state_dict(root, "model");
    dcp_state *moments = dcp_state_dict(dcp_state_dict(root, "optimizer"), "state");

    for (int i = 0; i < PARAMETER_COUNT; i++) {
        const struct parameter *p = &training->model.parameters[i];
        dcp_tensor chunk = parameter_chunk(p, &training->model.mesh);
        dcp_state *of_parameter = dcp_state_dict(moments, p->name);
        add_rows(model, p->name, &chunk, p->value);
        add_rows(of_parameter, "exp_avg", &chunk, p->exp_avg);
        add_rows(of_parameter, "exp_avg_sq", &chunk, p->exp_avg_sq);
    }
    dcp_state_stateful(root, "schedule",
                       &(dcp_stateful){schedule_save, schedule_load, &training->schedule});
    dcp_state_stateful(root, "data", &(dcp_stateful){data_save, data_load, &training->data});
    dcp_state_int(root, "step", training->step);
    return root;
}

dcp_status training_prepare_saves(struct training *training)
{
    dcp_save_chain_options options = {.group = training->group, .staging = DCP_STAGING_OVERLAPPED};

    return dcp_save_chain_new(&options, &training->saves);
}

/* Copies of parameters and moments are taken while the next step computes gradients. */
dcp_status training_save(struct training *training, const char *directory)
{
    dcp_state *state = training_state(training);
    dcp_save_options options = {.chain = training->saves, .has_step = true, .step = training->step};
    char path[4096];

    snprintf(path, sizeof path, "%s/step_%" PRId64, directory, training->step);
    dcp_status status = dcp_save_async(state, path, &options, &training->saving);
    training->saving_step = training->step;
    dcp_state_free(state);
    return status;
}

dcp_status training_follow_save(struct training *training, bool wait, int64_t *step)
{
    *step = -1;
    if (!training->saving || (!wait && dcp_future_poll(training->saving) < DCP_FUTURE_DONE))
        return DCP_OK;
    dcp_status status = dcp_future_wait(training->saving, -1);
    dcp_future_free(training->saving);
    training->saving = NULL;
    if (status == DCP_OK)
        *step = training->saving_step;
    return status;
}

dcp_status training_load(struct training *training, const char *directory, int64_t step)
{
    dcp_state *state = training_state(training);
    dcp_load_options options = {.group = training->group, .strictness = DCP_STRICT_RAISE_ALL};
    char path[4096];

    snprintf(path, sizeof path, "%s/step_%" PRId64, directory, step);
    dcp_status status = dcp_load(state, path, &options, NULL);
    if (status == DCP_OK)
        status = dcp_state_as_int(dcp_state_find(state, "step"), &training->step);
    dcp_state_free(state);
    return status;
}
