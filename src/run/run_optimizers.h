/* SPDX-License-Identifier: BSD-3-Clause */
/* A state may have several optimizers below one key, as many as the job has made; a checkpoint of a
 * job that made fewer has the first of them, or those of some names. */
#ifndef RUN_RUN_OPTIMIZERS_H
#define RUN_RUN_OPTIMIZERS_H

#include "dcp/state.h"

enum { RUN_OPTIMIZERS_MAX = 16, RUN_OPTIMIZER_NAME_MAX = 128 };

struct run_optimizers {
    char names[RUN_OPTIMIZERS_MAX][RUN_OPTIMIZER_NAME_MAX]; /* "optimizer.0" */
    size_t count; /* 0: there is one, or more than can be told apart */
};

/* Those of a state, of which the key is at the top. */
void run_optimizers_find(const dcp_state *state, const char *key,
                         struct run_optimizers *optimizers);
/* A bit for each that the name of a stored item belongs to. */
uint32_t run_optimizers_of(const struct run_optimizers *optimizers, const char *name);

#endif
