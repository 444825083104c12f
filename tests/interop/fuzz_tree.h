/* SPDX-License-Identifier: BSD-3-Clause */
/* Random state trees: every dtype, layout, division over ranks, value and key that can be built by
 * hand. */
#ifndef INTEROP_FUZZ_TREE_H
#define INTEROP_FUZZ_TREE_H

#include <cjson/cJSON.h>

#include "dcp.h"

struct fuzz_random {
    uint64_t state;
};

uint64_t fuzz_next(struct fuzz_random *random);
/* 0 to count - 1. */
uint64_t fuzz_below(struct fuzz_random *random, uint64_t count);

/* A tree as one of `ranks` ranks has it; the same `random` on all of them gives one state. */
struct fuzz_tree {
    struct fuzz_random random;
    int rank, ranks;
    dcp_state *root;
    uint64_t keys;    /* made so far, so that no two are equal */
    uint64_t tensors; /* made so far: what each is filled from */
    size_t block_count;
    void *blocks[4096];
};

/* Fills in the root and all that is under it. */
void fuzz_tree_build(struct fuzz_tree *tree);
void fuzz_tree_free(struct fuzz_tree *tree);

/* The entries of a manifest; the contents of tensors become files in the directory. */
cJSON *fuzz_tree_describe(const struct fuzz_tree *tree, const char *directory);

#endif
