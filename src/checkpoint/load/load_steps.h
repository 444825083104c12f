/* SPDX-License-Identifier: BSD-3-Clause */
/* What loads do differently at their steps: a table for loads as the library does them, and one for
 * loads with hooks (hooks/load_hooks.h). A dry run, which changes no destination, ends with
 * `measure` in the place of the last three. Nobody asks within a step which of them it is in. */
#ifndef CHECKPOINT_LOAD_LOAD_STEPS_H
#define CHECKPOINT_LOAD_LOAD_STEPS_H

#include <stdbool.h>

#include "base/buffer.h"
#include "dcp/load_planner.h"

struct load_steps {
    bool plan_holds;   /* as long as what is wanted and what is stored are the same */
    bool reads_shards; /* the library itself reads the shard files */

    /* At the coordinator: the bytes of .metadata. DCP_ERR_NOT_FOUND: there is none. */
    dcp_status (*read_metadata)(dcp_loading *loading, const char *path, struct buffer *raw);
    /* What this rank wants, and what differs from what is stored. */
    dcp_status (*plan_local)(dcp_loading *loading, dcp_state *state);
    /* Collective; status: how this rank came so far. All that can fail without a destination having
     * been touched. */
    dcp_status (*prepare)(dcp_loading *loading, dcp_status status);
    /* Collective: fills the destinations. */
    dcp_status (*read)(dcp_loading *loading);
    /* Collective: puts objects into the tree, and calls who is to know. */
    dcp_status (*finish)(dcp_loading *loading);

    /* Collective; as prepare, but finds the smallest limit of memory. */
    dcp_status (*measure)(dcp_loading *loading, dcp_status status);
};

/* The library's own. */
extern const struct load_steps load_steps_default;

/* Flattens a state as a load does: by the options, and with dicts whole that are stored whole. */
dcp_status load_flatten(dcp_loading *loading, dcp_state *state);
/* Before a destination is changed: what differs is logged. */
void load_begin_reading(dcp_loading *loading);
dcp_status load_finish(dcp_loading *loading);

#endif
