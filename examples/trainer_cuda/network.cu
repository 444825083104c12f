/* SPDX-License-Identifier: BSD-3-Clause */
#include "network.h"

enum { THREADS = 128 };

/* A number in [-1, 1) that depends on the seed and the place alone. */
__device__ static float random_at(uint64_t seed, uint64_t place)
{
    uint64_t z = seed * 0x9e3779b97f4a7c15ull + place * 0xd1342543de82ef95ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    return (float)(z >> 40) * (2.0f / 16777216.0f) - 1.0f;
}

__global__ static void fill(float *values, int count, uint64_t seed, float scale)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        values[i] = scale * random_at(seed, (uint64_t)i);
}

__global__ static void make_batch(float *inputs, float *wanted, uint64_t seed)
{
    int sample = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    if (sample >= BATCH)
        return;
    for (int i = 0; i < INPUTS; i++) {
        float input = random_at(seed, (uint64_t)(sample * INPUTS + i));
        inputs[sample * INPUTS + i] = input;
        sum += i % 3 == 0 ? input : -0.5f * input;
    }
    wanted[sample] = sinf(sum);
}

__global__ static void find_hidden(const float *inputs, const float *weight, const float *bias,
                                   float *hidden)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= BATCH * HIDDEN)
        return;
    int sample = i / HIDDEN, unit = i % HIDDEN;
    float sum = bias[unit];
    for (int k = 0; k < INPUTS; k++)
        sum += inputs[sample * INPUTS + k] * weight[unit * INPUTS + k];
    hidden[i] = tanhf(sum);
}

__global__ static void find_errors(const float *hidden, const float *weight, const float *bias,
                                   const float *wanted, float *errors)
{
    int sample = blockIdx.x * blockDim.x + threadIdx.x;
    if (sample >= BATCH)
        return;
    float sum = bias[0];
    for (int unit = 0; unit < HIDDEN; unit++)
        sum += hidden[sample * HIDDEN + unit] * weight[unit];
    errors[sample] = sum - wanted[sample];
}

/* Of the output's weights, and of its bias in the place behind them. */
__global__ static void find_output_gradients(const float *hidden, const float *errors,
                                             float *weight, float *bias)
{
    int unit = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    if (unit > HIDDEN)
        return;
    for (int sample = 0; sample < BATCH; sample++)
        sum += errors[sample] * (unit < HIDDEN ? hidden[sample * HIDDEN + unit] : 1.0f);
    *(unit < HIDDEN ? &weight[unit] : bias) = sum * (2.0f / BATCH);
}

/* Of the hidden layer: each row of weights has its bias behind it. */
__global__ static void find_hidden_gradients(const float *inputs, const float *hidden,
                                             const float *errors, const float *output,
                                             float *weight, float *bias)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= HIDDEN * (INPUTS + 1))
        return;
    int unit = i / (INPUTS + 1), k = i % (INPUTS + 1);
    float sum = 0.0f;
    for (int sample = 0; sample < BATCH; sample++) {
        float active = hidden[sample * HIDDEN + unit];
        float slope = errors[sample] * output[unit] * (1.0f - active * active);
        sum += slope * (k < INPUTS ? inputs[sample * INPUTS + k] : 1.0f);
    }
    *(k < INPUTS ? &weight[unit * INPUTS + k] : &bias[unit]) = sum * (2.0f / BATCH);
}

__global__ static void update(struct parameter parameter, float rate, float first, float second)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= parameter.rows * parameter.columns)
        return;
    float gradient = parameter.gradient[i];
    float average = 0.9f * parameter.exp_avg[i] + 0.1f * gradient;
    float square = 0.999f * parameter.exp_avg_sq[i] + 0.001f * gradient * gradient;
    parameter.exp_avg[i] = average;
    parameter.exp_avg_sq[i] = square;
    parameter.value[i] -= rate * (average / first) / (sqrtf(square / second) + 1e-8f);
}

static int blocks_for(int count)
{
    return (count + THREADS - 1) / THREADS;
}

static cudaError_t parameter_make(struct parameter *parameter, uint64_t seed, cudaStream_t stream)
{
    int count = parameter->rows * parameter->columns;
    size_t bytes = (size_t)count * sizeof(float);
    float **places[] = {&parameter->value, &parameter->gradient, &parameter->exp_avg,
                        &parameter->exp_avg_sq};
    for (float **place : places) {
        cudaError_t code = cudaMalloc((void **)place, bytes);
        if (code == cudaSuccess)
            code = cudaMemsetAsync(*place, 0, bytes, stream);
        if (code != cudaSuccess)
            return code;
    }
    fill<<<blocks_for(count), THREADS, 0, stream>>>(parameter->value, count, seed, 0.1f);
    return cudaGetLastError();
}

cudaError_t network_make(struct network *network, uint64_t seed)
{
    *network = {};
    network->parameters[0] = {"hidden.weight", HIDDEN, INPUTS};
    network->parameters[1] = {"hidden.bias", 1, HIDDEN};
    network->parameters[2] = {"output.weight", 1, HIDDEN};
    network->parameters[3] = {"output.bias", 1, 1};
    cudaError_t code = cudaStreamCreateWithFlags(&network->stream, cudaStreamNonBlocking);
    for (int i = 0; i < PARAMETERS && code == cudaSuccess; i++)
        code = parameter_make(&network->parameters[i], seed + (uint64_t)i, network->stream);
    if (code == cudaSuccess)
        code = cudaMalloc((void **)&network->inputs, BATCH * INPUTS * sizeof(float));
    if (code == cudaSuccess)
        code = cudaMalloc((void **)&network->wanted, BATCH * sizeof(float));
    if (code == cudaSuccess)
        code = cudaMalloc((void **)&network->hidden, BATCH * HIDDEN * sizeof(float));
    if (code == cudaSuccess)
        code = cudaMalloc((void **)&network->errors, BATCH * sizeof(float));
    return code;
}

void network_free(struct network *network)
{
    for (struct parameter &parameter : network->parameters) {
        cudaFree(parameter.value);
        cudaFree(parameter.gradient);
        cudaFree(parameter.exp_avg);
        cudaFree(parameter.exp_avg_sq);
    }
    cudaFree(network->inputs);
    cudaFree(network->wanted);
    cudaFree(network->hidden);
    cudaFree(network->errors);
    if (network->stream)
        cudaStreamDestroy(network->stream);
}

void network_find_gradients(struct network *network, int64_t step)
{
    struct parameter *p = network->parameters;
    cudaStream_t stream = network->stream;
    make_batch<<<blocks_for(BATCH), THREADS, 0, stream>>>(network->inputs, network->wanted,
                                                          1000u + (uint64_t)step);
    find_hidden<<<blocks_for(BATCH * HIDDEN), THREADS, 0, stream>>>(
        network->inputs, p[0].value, p[1].value, network->hidden);
    find_errors<<<blocks_for(BATCH), THREADS, 0, stream>>>(network->hidden, p[2].value, p[3].value,
                                                           network->wanted, network->errors);
    find_output_gradients<<<blocks_for(HIDDEN + 1), THREADS, 0, stream>>>(
        network->hidden, network->errors, p[2].gradient, p[3].gradient);
    find_hidden_gradients<<<blocks_for(HIDDEN * (INPUTS + 1)), THREADS, 0, stream>>>(
        network->inputs, network->hidden, network->errors, p[2].value, p[0].gradient,
        p[1].gradient);
}

void network_update(struct network *network, int64_t step, float rate)
{
    float first = 1.0f - powf(0.9f, (float)(step + 1));
    float second = 1.0f - powf(0.999f, (float)(step + 1));
    for (const struct parameter &parameter : network->parameters)
        update<<<blocks_for(parameter.rows * parameter.columns), THREADS, 0, network->stream>>>(
            parameter, rate, first, second);
}

cudaError_t network_loss(struct network *network, double *loss)
{
    float errors[BATCH];
    cudaError_t code = cudaMemcpyAsync(errors, network->errors, sizeof errors,
                                       cudaMemcpyDeviceToHost, network->stream);
    if (code == cudaSuccess)
        code = cudaStreamSynchronize(network->stream);
    *loss = 0.0;
    for (int i = 0; code == cudaSuccess && i < BATCH; i++)
        *loss += (double)errors[i] * errors[i] / BATCH;
    return code;
}
