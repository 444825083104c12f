/* SPDX-License-Identifier: BSD-3-Clause */
/* A small network on a GPU: inputs, a hidden layer with tanh, one output; Adam. All sums are added
 * up in one order, so that the same steps give the same bits. */
#ifndef TRAINER_CUDA_NETWORK_H
#define TRAINER_CUDA_NETWORK_H

#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { INPUTS = 64, HIDDEN = 512, BATCH = 256, PARAMETERS = 4 };

struct parameter {
    const char *name;
    int rows, columns;
    float *value, *gradient, *exp_avg, *exp_avg_sq; /* on the device */
};

struct network {
    struct parameter parameters[PARAMETERS];
    float *inputs, *wanted, *hidden, *errors; /* of a batch, on the device */
    cudaStream_t stream;
};

/* On the current device; values depend on the seed alone. */
cudaError_t network_make(struct network *network, uint64_t seed);
void network_free(struct network *network);

/* Put into the stream. The batch is that of the step. */
void network_find_gradients(struct network *network, int64_t step);
void network_update(struct network *network, int64_t step, float rate);
/* Waits for the stream. loss: of the last batch. */
cudaError_t network_loss(struct network *network, double *loss);

#ifdef __cplusplus
}
#endif

#endif
