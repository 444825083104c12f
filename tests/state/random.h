/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers for property tests: the same ones in every run. */
#ifndef STATE_RANDOM_H
#define STATE_RANDOM_H

#include <stdint.h>

struct random {
    uint64_t state; /* not zero */
};

static inline uint64_t random_next(struct random *random)
{
    random->state ^= random->state << 13;
    random->state ^= random->state >> 7;
    random->state ^= random->state << 17;
    return random->state * 0x2545f4914f6cdd1du;
}

/* low to high, both included. */
static inline int64_t random_between(struct random *random, int64_t low, int64_t high)
{
    return low + (int64_t)((random_next(random) >> 16) % (uint64_t)(high - low + 1));
}

#endif
