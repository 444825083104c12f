/* SPDX-License-Identifier: BSD-3-Clause */
/* A random state as a file of torch.save in which tensors share storages. */
#ifndef TESTS_RESHARD_RANDOM_VIEWS_H
#define TESTS_RESHARD_RANDOM_VIEWS_H

#include "reshard/random_state.h"

/* Writes DIRECTORY/NAME. Storages hold one tensor or several, also transposed ones and ones with
 * gaps, and elements that are of no tensor; equal tensors are one. */
void random_views_write(const struct random_state *state, uint64_t *seed, const char *directory,
                        const char *name);

#endif
