/* SPDX-License-Identifier: BSD-3-Clause */
#include "model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixed_point.h"

dcp_tensor parameter_chunk(const struct parameter *parameter, const dcp_mesh *mesh)
{
    dcp_tensor chunk = parameter->shape;
    dcp_placement by_rows = dcp_shard(0);

    /* Cannot fail: the mesh has one dimension and every parameter has rows. */
    (void)dcp_mesh_shard(mesh, &chunk, &by_rows);
    return chunk;
}

static void *zeroed(int64_t count, size_t size)
{
    return calloc(count > 0 ? (size_t)count : 1, size);
}

static bool parameter_new(struct parameter *parameter, const dcp_mesh *mesh, uint64_t *random)
{
    int64_t all = parameter->rows * parameter->columns;
    int ranks = (int)mesh->shape[0];
    dcp_mesh seen_from = *mesh;

    parameter->counts = zeroed(ranks, sizeof(int));
    parameter->starts = zeroed(ranks, sizeof(int));
    if (!parameter->counts || !parameter->starts)
        return false;
    for (int r = 0; r < ranks; r++) {
        seen_from.rank = r;
        dcp_tensor chunk = parameter_chunk(parameter, &seen_from);
        parameter->counts[r] = (int)(chunk.sizes[0] * parameter->columns);
        parameter->starts[r] = (int)(chunk.offsets[0] * parameter->columns);
    }

    int own = parameter->counts[mesh->rank];
    parameter->whole = zeroed(all, sizeof(float));
    parameter->gradient = zeroed(all, sizeof(float));
    parameter->fixed_sum = zeroed(all, sizeof(int64_t));
    parameter->value = zeroed(own, sizeof(float));
    parameter->exp_avg = zeroed(own, sizeof(float));
    parameter->exp_avg_sq = zeroed(own, sizeof(float));
    parameter->fixed_gradient = zeroed(own, sizeof(int64_t));
    if (!parameter->whole || !parameter->gradient || !parameter->fixed_sum || !parameter->value ||
        !parameter->exp_avg || !parameter->exp_avg_sq || !parameter->fixed_gradient)
        return false;

    /* Weights as He et al. (2015); biases stay zero. */
    double spread = sqrt(6.0 / (double)parameter->columns);
    for (int64_t i = 0; parameter->shape.ndim == 2 && i < all; i++)
        parameter->whole[i] = (float)(spread * (2 * random_uniform(random) - 1));
    memcpy(parameter->value, parameter->whole + parameter->starts[mesh->rank],
           (size_t)own * sizeof(float));
    return true;
}

bool model_new(struct model *model, int64_t hidden, int rank, int ranks)
{
    const int64_t units[LAYER_COUNT + 1] = {FEATURES, hidden, hidden, CLASSES};
    uint64_t random = 1;

    *model = (struct model){
        .mesh = {.ndim = 1, .shape = {ranks}, .rank = rank},
    };
    for (int i = 0; i < PARAMETER_COUNT; i++) {
        struct parameter *parameter = &model->parameters[i];
        int layer = i / 2;
        bool bias = i % 2;
        snprintf(parameter->name, sizeof parameter->name, "%d.%s", 2 * layer,
                 bias ? "bias" : "weight");
        parameter->rows = units[layer + 1];
        parameter->columns = bias ? 1 : units[layer];
        parameter->shape = (dcp_tensor){
            .dtype = DCP_F32,
            .ndim = bias ? 1 : 2,
            .global_shape = {parameter->rows, parameter->columns},
            .requires_grad = true,
        };
        if (!parameter_new(parameter, &model->mesh, &random))
            return false;
    }
    for (int i = 0; i <= LAYER_COUNT; i++) {
        model->activations[i] = zeroed(units[i] * SAMPLES, sizeof(float));
        model->deltas[i] = zeroed(units[i] * SAMPLES, sizeof(float));
        if (!model->activations[i] || !model->deltas[i])
            return false;
    }
    return true;
}

void model_free(struct model *model)
{
    for (int i = 0; i < PARAMETER_COUNT; i++) {
        struct parameter *parameter = &model->parameters[i];
        free(parameter->whole);
        free(parameter->gradient);
        free(parameter->fixed_sum);
        free(parameter->counts);
        free(parameter->starts);
        free(parameter->value);
        free(parameter->exp_avg);
        free(parameter->exp_avg_sq);
        free(parameter->fixed_gradient);
    }
    for (int i = 0; i <= LAYER_COUNT; i++) {
        free(model->activations[i]);
        free(model->deltas[i]);
    }
}

/* out = weight * in + bias, through ReLU unless it is the last layer. */
static void layer_forward(struct model *model, int layer)
{
    const struct parameter *weight = &model->parameters[2 * layer];
    const float *bias = model->parameters[2 * layer + 1].whole;

    for (int64_t o = 0; o < weight->rows; o++) {
        float *out = model->activations[layer + 1] + o * SAMPLES;
        for (int s = 0; s < SAMPLES; s++)
            out[s] = bias[o];
        for (int64_t i = 0; i < weight->columns; i++) {
            const float *in = model->activations[layer] + i * SAMPLES;
            float w = weight->whole[o * weight->columns + i];
            for (int s = 0; s < SAMPLES; s++)
                out[s] += w * in[s];
        }
        for (int s = 0; s < SAMPLES && layer + 1 < LAYER_COUNT; s++)
            out[s] = out[s] > 0 ? out[s] : 0;
    }
}

/* From the deltas after a layer: gradients of its weight and bias, and the deltas before it. */
static void layer_backward(struct model *model, int layer)
{
    struct parameter *weight = &model->parameters[2 * layer];
    struct parameter *bias = &model->parameters[2 * layer + 1];
    const float *in = model->activations[layer];
    float *before = model->deltas[layer];

    memset(before, 0, (size_t)weight->columns * SAMPLES * sizeof(float));
    for (int64_t o = 0; o < weight->rows; o++) {
        const float *delta = model->deltas[layer + 1] + o * SAMPLES;
        float bias_sum = 0;
        for (int s = 0; s < SAMPLES; s++)
            bias_sum += delta[s];
        bias->gradient[o] = bias_sum;
        for (int64_t i = 0; i < weight->columns; i++) {
            float w = weight->whole[o * weight->columns + i];
            float sum = 0;
            for (int s = 0; s < SAMPLES; s++) {
                sum += delta[s] * in[i * SAMPLES + s];
                before[i * SAMPLES + s] += w * delta[s];
            }
            weight->gradient[o * weight->columns + i] = sum;
        }
    }
    for (int64_t i = 0; i < weight->columns * SAMPLES; i++)
        before[i] = in[i] > 0 ? before[i] : 0;
}

/* Softmax and cross-entropy: the mean loss, and the deltas after the last layer. */
static double loss_backward(struct model *model, const int labels[SAMPLES])
{
    const float *logits = model->activations[LAYER_COUNT];
    float *deltas = model->deltas[LAYER_COUNT];
    double loss = 0;

    for (int s = 0; s < SAMPLES; s++) {
        double sum = 0;
        for (int c = 0; c < CLASSES; c++)
            sum += exp((double)logits[c * SAMPLES + s]);
        for (int c = 0; c < CLASSES; c++) {
            double probability = exp((double)logits[c * SAMPLES + s]) / sum;
            deltas[c * SAMPLES + s] = (float)((probability - (c == labels[s])) / SAMPLES);
        }
        loss -= (double)logits[labels[s] * SAMPLES + s] - log(sum);
    }
    return loss / SAMPLES;
}

double model_accumulate(struct model *model, const struct micro_batch *batch)
{
    memcpy(model->activations[0], batch->points, sizeof batch->points);
    for (int layer = 0; layer < LAYER_COUNT; layer++)
        layer_forward(model, layer);
    double loss = loss_backward(model, batch->labels);
    for (int layer = LAYER_COUNT - 1; layer >= 0; layer--)
        layer_backward(model, layer);
    for (int i = 0; i < PARAMETER_COUNT; i++) {
        struct parameter *parameter = &model->parameters[i];
        for (int64_t j = 0; j < parameter->rows * parameter->columns; j++)
            parameter->fixed_sum[j] += fixed_from((double)parameter->gradient[j]);
    }
    return loss;
}
