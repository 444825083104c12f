/* SPDX-License-Identifier: BSD-3-Clause */
/* The data: points on three interleaved spirals, drawn from a stream of random numbers whose
 * position is part of the checkpoint. */
#ifndef TRAINER_SPIRALS_H
#define TRAINER_SPIRALS_H

#include <stdint.h>

enum { FEATURES = 2, CLASSES = 3, SAMPLES = 8, MICRO_BATCHES = 12 };

struct spirals {
    uint64_t random_state;
    int64_t samples_seen;
};

struct micro_batch {
    float points[FEATURES][SAMPLES];
    int labels[SAMPLES];
};

double random_uniform(uint64_t *state);
/* Every rank draws every batch, and works on its own micro-batches of it. */
void spirals_draw(struct spirals *spirals, struct micro_batch batch[MICRO_BATCHES]);

#endif
