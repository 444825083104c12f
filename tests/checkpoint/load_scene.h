/* SPDX-License-Identifier: BSD-3-Clause */
/* What tests of hooks load: a checkpoint of two ranks, and trees that want it divided otherwise. */
#ifndef TESTS_LOAD_SCENE_H
#define TESTS_LOAD_SCENE_H

#include "checkpoint/ranks.h"

enum { SCENE_ROWS = 8, SCENE_COLUMNS = 6 };

/* One rank's tree: w, its columns of a matrix of float32 that was saved by rows; b, a vector of
 * SCENE_COLUMNS that all have; step, an int; and cfg, a list of values. */
struct scene {
    dcp_state *root;
    int64_t columns; /* of w that are here */
    int64_t first;   /* and where they begin */
    float w[SCENE_ROWS * SCENE_COLUMNS];
    float b[SCENE_COLUMNS];
};

/* Saves: w(r, c) = 100 r + c, b(c) = 7 + c, step 1000, cfg [1, 2]. For ranks_must(). */
dcp_status scene_save(struct rank *self);
/* Filled with -1, step 0, cfg []. no_memory: tensors have none. */
void scene_init(struct scene *scene, const struct rank *self, bool no_memory);
void scene_free(struct scene *scene);

/* DCP_OK, or a failure that says what is not as it was saved. */
dcp_status scene_check(const struct scene *scene);
dcp_status scene_check_w(const struct scene *scene);
/* Nothing has been touched. */
dcp_status scene_check_untouched(const struct scene *scene);

#endif
