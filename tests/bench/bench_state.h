/* SPDX-License-Identifier: BSD-3-Clause */
/* The state that benchmarks save and load: equal float32 matrices, divided over the ranks. */
#ifndef BENCH_STATE_H
#define BENCH_STATE_H

#include <dcp.h>

/* Rows of each matrix, usually: a number that many numbers of ranks divide. */
enum { BENCH_ROWS = 240 };

struct bench_state {
    size_t count;
    int64_t rows, columns;
    dcp_tensor *chunks;
    dcp_state *root;
};

/* Divides by dimension 0 or 1; -1: every rank has everything. with_layout: the tensors say so, and
 * the group has that many ranks. Exits if it cannot. */
void bench_state_new(struct bench_state *state, size_t count, int64_t rows, int64_t columns,
                     int dim, int rank, int ranks, bool with_layout);
void bench_state_free(struct bench_state *state);

void bench_state_fill(const struct bench_state *state);
void bench_state_clear(const struct bench_state *state);
/* Whether all elements are what bench_state_fill() makes them. */
bool bench_state_is_filled(const struct bench_state *state);

#endif
