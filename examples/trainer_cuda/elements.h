/* SPDX-License-Identifier: BSD-3-Clause */
/* What each kernel does for one of its elements. */
#ifndef TRAINER_CUDA_ELEMENTS_H
#define TRAINER_CUDA_ELEMENTS_H

#include <math.h>

#include "network.h"

#ifdef __CUDACC__
#define ELEMENT __device__ static inline
#else
#define ELEMENT static inline
#endif

/* A number in [-1, 1) that depends on the seed and the place alone. */
ELEMENT float random_at(uint64_t seed, uint64_t place)
{
    uint64_t z = seed * 0x9e3779b97f4a7c15u + place * 0xd1342543de82ef95u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (float)(z >> 40) * (2.0f / 16777216.0f) - 1.0f;
}

ELEMENT void set_value(const struct network *network, int i)
{
    network->values[i] = 0.3f * random_at(1, (uint64_t)i);
    network->exp_avg[i] = network->exp_avg_sq[i] = 0.0f;
    if (i == 0)
        network->sums[LOSS] = 0;
}

/* Samples are numbered over all GPUs. */
ELEMENT void make_sample(const struct network *network, int sample)
{
    uint64_t seed = 1000u + (uint64_t)network->step;
    float *inputs = network->inputs + sample * INPUTS;
    float sum = 0.0f;
    for (int i = 0; i < INPUTS; i++) {
        inputs[i] = random_at(seed, (uint64_t)((network->first + sample) * INPUTS + i));
        sum += i % 3 == 0 ? inputs[i] : -0.5f * inputs[i];
    }
    network->wanted[sample] = sinf(sum);
}

ELEMENT void find_hidden(const struct network *network, int i)
{
    int unit = i % HIDDEN;
    const float *inputs = network->inputs + i / HIDDEN * INPUTS;
    const float *weights = network->values + HIDDEN_WEIGHT + unit * INPUTS;
    float sum = network->values[HIDDEN_BIAS + unit];
    for (int k = 0; k < INPUTS; k++)
        sum += inputs[k] * weights[k];
    network->hidden[i] = tanhf(sum);
}

ELEMENT void find_error(const struct network *network, int sample)
{
    const float *hidden = network->hidden + sample * HIDDEN;
    float sum = network->values[OUTPUT_BIAS];
    for (int unit = 0; unit < HIDDEN; unit++)
        sum += hidden[unit] * network->values[OUTPUT_WEIGHT + unit];
    network->errors[sample] = sum - network->wanted[sample];
}

/* What a sample adds to the gradient of a value, or to the loss. */
ELEMENT float find_term(const struct network *network, int i, int sample)
{
    float error = network->errors[sample];
    const float *hidden = network->hidden + sample * HIDDEN;
    if (i == LOSS)
        return error * error;
    if (i >= OUTPUT_WEIGHT)
        return 2.0f * error * (i < OUTPUT_BIAS ? hidden[i - OUTPUT_WEIGHT] : 1.0f);
    int unit = i < HIDDEN_BIAS ? i / INPUTS : i - HIDDEN_BIAS;
    float slope = network->values[OUTPUT_WEIGHT + unit] * (1.0f - hidden[unit] * hidden[unit]);
    float input = i < HIDDEN_BIAS ? network->inputs[sample * INPUTS + i % INPUTS] : 1.0f;
    return 2.0f * error * slope * input;
}

/* In units of 2^-40, so that the order of terms does not matter. */
ELEMENT void add_up(const struct network *network, int i)
{
    int64_t sum = 0;
    for (int sample = 0; sample < network->samples; sample++)
        sum += (int64_t)((double)find_term(network, i, sample) * 1099511627776.0);
    network->sums[i] = sum;
}

ELEMENT void update(const struct network *network, int i)
{
    const float rate = 3e-3f;
    float gradient = (float)((double)network->sums[i] / 1099511627776.0 / BATCH);
    float average = 0.9f * network->exp_avg[i] + 0.1f * gradient;
    float square = 0.999f * network->exp_avg_sq[i] + 0.001f * gradient * gradient;
    network->exp_avg[i] = average;
    network->exp_avg_sq[i] = square;
    network->values[i] -=
        rate * (average / network->unbias1) / (sqrtf(square / network->unbias2) + 1e-8f);
}

#endif
