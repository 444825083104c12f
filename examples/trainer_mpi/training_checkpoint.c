/* SPDX-License-Identifier: BSD-3-Clause */
/* What of a training run goes into its checkpoints: the same tree describes it for saving and for
 * loading. */
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

/* Failures stick to the tree, and the save or load reports them. */
dcp_state *training_state(struct training *training)
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
    return root;
}
