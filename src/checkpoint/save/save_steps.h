/* SPDX-License-Identifier: BSD-3-Clause */
/* The steps of a save, as a table: the default one, and one for saves with hooks
 * (hooks/save_hooks.h). A dry run, which writes nothing, replaces two steps. No step asks which
 * table it is in. */
#ifndef CHECKPOINT_SAVE_SAVE_STEPS_H
#define CHECKPOINT_SAVE_SAVE_STEPS_H

#include "checkpoint/hooks/hooks.h"
#include "dcp/save.h"
#include "group/group.h"
#include "state/metadata.h"

struct save_steps {
    /* Data is looked up in the state only when it is written, so an asynchronous save copies the
     * whole state before planning, and not just the tensors of the orders. */
    bool needs_state;

    /* Takes the state, and then makes the plan of what this rank holds. */
    dcp_status (*set_up)(dcp_saving *saving, dcp_state *state);
    dcp_status (*plan_local)(dcp_saving *saving);
    /* For another attempt, perhaps in another place: makes anew what depends on the place. */
    dcp_status (*set_up_again)(dcp_saving *saving);
    /* Collective: from all ranks' plans to the orders of each. */
    dcp_status (*plan_global)(dcp_saving *saving);
    /* Collective: reuses kept orders. status: this rank's status so far. */
    dcp_status (*reuse_plan)(dcp_saving *saving, dcp_status status);
    dcp_status (*write)(dcp_saving *saving);
    /* After a failure, on every rank. */
    void (*abandon)(dcp_saving *saving);
    void (*free)(dcp_saving *saving);

    /* At the coordinator: begins the session; completes the metadata with what was not planned;
     * takes what ranks say of where everything lies; makes the checkpoint visible. */
    dcp_status (*begin)(dcp_saving *saving);
    void (*describe)(const dcp_saving *saving, struct metadata *metadata);
    dcp_status (*take_results)(dcp_saving *saving, const struct group_messages *results);
    dcp_status (*commit)(dcp_saving *saving);

    /* Instead of set_up, in a dry run. */
    dcp_status (*set_up_dry)(dcp_saving *saving, dcp_state *state);
};

/* The library's own. */
extern const struct save_steps save_steps_default;

/* Changes them to those of a dry run, which ends before writing. */
void save_steps_make_dry(struct save_steps *steps);

#endif
