/* SPDX-License-Identifier: BSD-3-Clause */
/* A small network on a GPU: inputs, a hidden layer with tanh, one output; Adam. Each GPU computes
 * with its own samples of a batch. What is summed up over samples is in fixed point, so that the
 * sums are the same in any order, on any number of GPUs. */
#ifndef TRAINER_CUDA_NETWORK_H
#define TRAINER_CUDA_NETWORK_H

#include <stdint.h>

#include <cuda_runtime_api.h>

enum { INPUTS = 8, HIDDEN = 512, BATCH = 128 };

/* Where parameters lie among all values. */
enum {
    HIDDEN_WEIGHT = 0, /* a row for each unit */
    HIDDEN_BIAS = HIDDEN_WEIGHT + HIDDEN * INPUTS,
    OUTPUT_WEIGHT = HIDDEN_BIAS + HIDDEN,
    OUTPUT_BIAS = OUTPUT_WEIGHT + HIDDEN,
    VALUES = OUTPUT_BIAS + 1,
    LOSS = VALUES, /* among the sums */
    SUMS
};

struct network {
    /* On the device. */
    float *values, *exp_avg, *exp_avg_sq;
    int64_t *sums; /* gradients, and the loss behind them, of the whole batch times its size */
    float *inputs, *wanted, *hidden, *errors; /* of our samples */

    int first, samples;     /* of each batch */
    int64_t step;           /* steps taken */
    float unbias1, unbias2; /* Adam's corrections, in the step that is taken */
    cudaStream_t stream;
};

/* On the current device, whose part of each batch is number part of parts. */
cudaError_t network_make(struct network *network, int part, int parts);
void network_free(struct network *network);

/* These two are put into the stream. Between them, the sums of all GPUs are added up. */
void network_find_gradients(struct network *network);
void network_update(struct network *network);
/* Waits for the stream; the mean over the last batch. */
cudaError_t network_loss(const struct network *network, double *loss);

#endif
