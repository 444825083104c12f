/* SPDX-License-Identifier: BSD-3-Clause */
/* What tests of asynchronous saves save: a model that changes with each step, and writing that can
 * be held up. */
#ifndef CHECKPOINT_ASYNC_MODEL_H
#define CHECKPOINT_ASYNC_MODEL_H

#include "dcp.h"

enum { ROWS = 512, COLUMNS = 1024, WAIT = 60 };

/* Rows of a matrix that all ranks share, and a replica that each has. */
struct model {
    int64_t first, rows;
    float *shard;
    float replica[COLUMNS];
};

/* The shard is freed by the test. */
void make_model(struct model *model, int rank, int size, int64_t step);
void fill(struct model *model, int64_t step);
dcp_state *tree_of(struct model *model, int64_t step);
/* Whether the checkpoint holds what a step had. */
dcp_status check(const char *path, int64_t step);
/* Begins to save, and frees the tree. */
dcp_status begin(struct model *model, int64_t step, const char *path,
                 const dcp_save_options *options, dcp_future **future);

/* Whether wait_while_held() keeps the threads that write. */
void hold(bool held);
/* A progress function. */
bool wait_while_held(void *context, const dcp_progress *progress);

#endif
