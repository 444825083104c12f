/* SPDX-License-Identifier: BSD-3-Clause */
/* The steps of a load, as a table: the default one, and one for loads with hooks
 * (hooks/load_hooks.h). A dry run, which changes no destination, ends with `measure` instead of the
 * last three steps. No step asks which table it is in. */
#ifndef CHECKPOINT_LOAD_LOAD_STEPS_H
#define CHECKPOINT_LOAD_LOAD_STEPS_H

#include <stdbool.h>

#include "base/buffer.h"
#include "dcp/load_planner.h"

struct load_steps {
    bool plan_holds;   /* plans are valid as long as wanted and stored structures stay the same */
    bool reads_shards; /* the library itself reads the shard files */

    /* At the coordinator: reads the bytes of .metadata. DCP_ERR_NOT_FOUND: there is none. */
    dcp_status (*read_metadata)(dcp_loading *loading, const char *path, struct buffer *raw);
    /* Plans what this rank wants, and finds differences to what is stored. */
    dcp_status (*plan_local)(dcp_loading *loading, dcp_state *state);
    /* Collective; status: this rank's status so far. Everything that can fail before a destination
     * is changed. */
    dcp_status (*prepare)(dcp_loading *loading, dcp_status status);
    /* Collective: fills the destinations. */
    dcp_status (*read)(dcp_loading *loading);
    /* Collective: puts objects into the tree, and calls notification functions. */
    dcp_status (*finish)(dcp_loading *loading);

    /* Collective; as prepare, but finds the smallest limit of memory. */
    dcp_status (*measure)(dcp_loading *loading, dcp_status status);
};

/* The library's own. */
extern const struct load_steps load_steps_default;

/* Flattens a state for a load: by the options, with dicts as one object if they are stored so. */
dcp_status load_flatten(dcp_loading *loading, dcp_state *state);
/* Logs differences, before a destination is changed. */
void load_begin_reading(dcp_loading *loading);
dcp_status load_finish(dcp_loading *loading);

#endif
