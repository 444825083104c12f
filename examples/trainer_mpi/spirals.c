/* SPDX-License-Identifier: BSD-3-Clause */
#include "spirals.h"

#include <math.h>

/* SplitMix64. */
double random_uniform(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

void spirals_draw(struct spirals *spirals, struct micro_batch batch[MICRO_BATCHES])
{
    for (int m = 0; m < MICRO_BATCHES; m++) {
        for (int s = 0; s < SAMPLES; s++) {
            int label = (int)(spirals->samples_seen++ % CLASSES);
            double radius = random_uniform(&spirals->random_state);
            double noise = 0.3 * random_uniform(&spirals->random_state);
            double angle = 2.0943951023931953 * label + 4 * radius + noise;
            batch[m].labels[s] = label;
            batch[m].points[0][s] = (float)(radius * sin(angle));
            batch[m].points[1][s] = (float)(radius * cos(angle));
        }
    }
}
