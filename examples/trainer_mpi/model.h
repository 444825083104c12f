/* SPDX-License-Identifier: BSD-3-Clause */
/* A small multi-layer perceptron whose parameters are sharded over the ranks by rows, as FSDP does.
 *
 * Whole parameters exist only for the forward and backward pass; each rank keeps its rows of them
 * and of Adam's moments. Gradients are summed over micro-batches in fixed point, where the order of
 * additions does not matter, so that the loss is the same to the last bit on any number of ranks.
 */
#ifndef TRAINER_MODEL_H
#define TRAINER_MODEL_H

#include <stdint.h>

#include <dcp.h>

#include "spirals.h"

enum { LAYER_COUNT = 3, PARAMETER_COUNT = 2 * LAYER_COUNT };

struct parameter {
    char name[16]; /* as torch.nn.Sequential names it: "0.weight" */
    dcp_tensor shape;
    int64_t rows, columns; /* a bias has one column */

    float *whole;       /* all rows, gathered before each step */
    float *gradient;    /* all rows, of one micro-batch */
    int64_t *fixed_sum; /* all rows, over this rank's micro-batches */

    int *counts, *starts; /* elements that each rank owns, and where they begin */
    float *value;         /* this rank's rows of the parameter, and of Adam's moments */
    float *exp_avg;
    float *exp_avg_sq;
    int64_t *fixed_gradient; /* this rank's rows, summed over all ranks */
};

struct model {
    dcp_mesh mesh; /* one dimension: all ranks */
    struct parameter parameters[PARAMETER_COUNT];
    float *activations[LAYER_COUNT + 1]; /* [unit][sample] */
    float *deltas[LAYER_COUNT + 1];
};

/* Makes a model with the same random parameters on any number of ranks. False: no memory. */
bool model_new(struct model *model, int64_t hidden, int rank, int ranks);
void model_free(struct model *model);

/* Describes the rows of a parameter that a rank owns. */
dcp_tensor parameter_chunk(const struct parameter *parameter, const dcp_mesh *mesh);

/* Forward and backward pass of one micro-batch: adds to fixed_sum, returns the mean loss. */
double model_accumulate(struct model *model, const struct micro_batch *batch);

#endif
