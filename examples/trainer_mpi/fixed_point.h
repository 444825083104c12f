/* SPDX-License-Identifier: BSD-3-Clause */
/* Sums that do not depend on the order of their terms: integers in units of 2^-40. */
#ifndef TRAINER_FIXED_POINT_H
#define TRAINER_FIXED_POINT_H

#include <stdint.h>

static inline int64_t fixed_from(double value)
{
    return (int64_t)(value * 0x1p40);
}

static inline double fixed_to(int64_t fixed)
{
    return (double)fixed * 0x1p-40;
}

#endif
