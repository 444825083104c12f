/* SPDX-License-Identifier: BSD-3-Clause */
/* States of random tensors, divided among ranks at random; the bytes of an element follow from its
 * tensor and its place in it. Some tensors are equal. */
#ifndef TESTS_RESHARD_RANDOM_STATE_H
#define TESTS_RESHARD_RANDOM_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dcp.h"

enum { RANDOM_DIMS = 3, RANDOM_TENSORS_MAX = 60, RANDOM_CHUNKS_MAX = 16 };

struct random_tensor {
    dcp_dtype dtype;
    int32_t ndim;
    int64_t shape[RANDOM_DIMS];
    int equal; /* the number of the first tensor that is equal: its own, or another one */
};

struct random_state {
    int count;
    struct random_tensor tensors[RANDOM_TENSORS_MAX];
};

/* A few tensors of any size up to some MiB, or many small ones. */
void random_state_make(struct random_state *state, uint64_t *seed);
uint64_t random_state_bytes(const struct random_state *state);
/* Writes all elements of a tensor to memory, by strides in elements. */
void random_state_lay(const struct random_state *state, int tensor, const int64_t *strides,
                      void *memory);

struct random_box {
    int64_t offsets[RANDOM_DIMS];
    int64_t sizes[RANDOM_DIMS];
};

/* Who has what of a tensor. Chunks of one rank have no common element. */
struct random_chunks {
    int count;
    struct random_chunk {
        int rank;
        struct random_box box;
    } chunks[RANDOM_CHUNKS_MAX];
};

/* By tensor, for a number of ranks. */
struct random_division {
    int ranks;
    struct random_chunks of[RANDOM_TENSORS_MAX];
};

/* Every element is in one box, and that at one rank or several: what can be saved. */
void random_divide_all(struct random_division *division, const struct random_state *state,
                       int ranks, uint64_t *seed);
/* Rows, columns, boxes, everything, whatever a rank may want. */
void random_divide_some(struct random_division *division, const struct random_state *state,
                        int ranks, uint64_t *seed);

/* By rows alone: every element has one rank. */
void random_divide_rows(struct random_division *division, const struct random_state *state,
                        int ranks, uint64_t *seed);
/* One rank has all. */
void random_divide_everything(struct random_division *division, const struct random_state *state);
/* Keeps every second tensor, from number `half` on, 0 or 1; nobody has the others. */
void random_division_halve(struct random_division *division, const struct random_state *state,
                           int half);

/* What a rank has of a state. */
struct random_tree {
    const struct random_state *state;
    const struct random_division *division;
    int rank;
    bool transposed; /* chunks lie column-major */
    dcp_state *root;
    int count;
    unsigned char *memory[RANDOM_TENSORS_MAX * RANDOM_CHUNKS_MAX];
};

/* By its first four members, the other ones being 0. All elements are wrong. False: no memory. */
bool random_tree_make(struct random_tree *tree);
/* Makes every element what it should be, or every byte of it another one. */
void random_tree_fill(const struct random_tree *tree, bool right);
/* Whether all elements are what they should be; else `text` says which is not. */
bool random_tree_check(const struct random_tree *tree, char *text, size_t size);
void random_tree_free(struct random_tree *tree);

#endif
