/* SPDX-License-Identifier: BSD-3-Clause */
/* Internal to a load with hooks: hands data to the planner. One thread at a time. */
#ifndef CHECKPOINT_HOOKS_LOAD_HOOKS_HAND_OVER_H
#define CHECKPOINT_HOOKS_LOAD_HOOKS_HAND_OVER_H

#include "checkpoint/hooks/load_hooks.h"
#include "checkpoint/load/loading.h"

/* The destination of the elements: checked, with memory, strides and sizes filled in. */
dcp_status hand_over_resolve(struct dcp_loading *loading, size_t index, dcp_tensor *tensor);
dcp_status hand_over_commit(struct dcp_loading *loading, size_t index, const dcp_tensor *tensor);
/* Memory for an object's stream. */
dcp_status hand_over_lend(struct dcp_loading *loading, size_t index, size_t size, void **bytes);
dcp_status hand_over_bytes(struct dcp_loading *loading, size_t index, const void *bytes,
                           size_t size);
/* An object that is decoded already, in a pool that hand_over_pool() made (NULL: no memory). */
struct state_pool *hand_over_pool(const struct dcp_loading *loading, size_t index);
dcp_status hand_over_object(struct dcp_loading *loading, size_t index, struct state_pool *pool,
                            dcp_state *object);

#endif
