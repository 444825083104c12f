/* SPDX-License-Identifier: BSD-3-Clause */
#include "network.h"

#include <math.h>
#include <stddef.h>

#include "kernels.h"

cudaError_t network_make(struct network *network, int part, int parts)
{
    int first = part * BATCH / parts;
    *network = (struct network){.first = first, .samples = (part + 1) * BATCH / parts - first};
    size_t samples = (size_t)network->samples;
    const struct {
        void *place;
        size_t bytes;
    } arrays[] = {
        {&network->values, VALUES * sizeof(float)},
        {&network->exp_avg, VALUES * sizeof(float)},
        {&network->exp_avg_sq, VALUES * sizeof(float)},
        {&network->sums, SUMS * sizeof(int64_t)},
        {&network->inputs, samples * INPUTS * sizeof(float)},
        {&network->wanted, samples * sizeof(float)},
        {&network->hidden, samples * HIDDEN * sizeof(float)},
        {&network->errors, samples * sizeof(float)},
    };
    cudaError_t code = cudaStreamCreateWithFlags(&network->stream, cudaStreamNonBlocking);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays && code == cudaSuccess; i++)
        code = cudaMalloc((void **)arrays[i].place, arrays[i].bytes);
    if (code == cudaSuccess)
        kernel_launch(KERNEL_SET_VALUES, network, VALUES);
    return code == cudaSuccess ? cudaGetLastError() : code;
}

void network_free(struct network *network)
{
    void *arrays[] = {network->values, network->exp_avg, network->exp_avg_sq, network->sums,
                      network->inputs, network->wanted,  network->hidden,     network->errors};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        cudaFree(arrays[i]);
    if (network->stream)
        cudaStreamDestroy(network->stream);
}

void network_find_gradients(struct network *network)
{
    kernel_launch(KERNEL_MAKE_SAMPLES, network, network->samples);
    kernel_launch(KERNEL_FIND_HIDDEN, network, network->samples * HIDDEN);
    kernel_launch(KERNEL_FIND_ERRORS, network, network->samples);
    kernel_launch(KERNEL_ADD_UP, network, SUMS);
}

void network_update(struct network *network)
{
    network->step++;
    network->unbias1 = 1.0f - powf(0.9f, (float)network->step);
    network->unbias2 = 1.0f - powf(0.999f, (float)network->step);
    kernel_launch(KERNEL_UPDATE, network, VALUES);
}

cudaError_t network_loss(const struct network *network, double *loss)
{
    int64_t sum = 0;
    cudaError_t code = cudaMemcpyAsync(&sum, network->sums + LOSS, sizeof sum,
                                       cudaMemcpyDeviceToHost, network->stream);
    if (code == cudaSuccess)
        code = cudaStreamSynchronize(network->stream);
    *loss = (double)sum * 0x1p-40 / BATCH;
    return code;
}
