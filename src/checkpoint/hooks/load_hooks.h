/* SPDX-License-Identifier: BSD-3-Clause */
/* The steps of a load with a planner or a storage reader: hooks are called where there are any, and
 * the library does what it does by default where there are none. */
#ifndef CHECKPOINT_HOOKS_LOAD_HOOKS_H
#define CHECKPOINT_HOOKS_LOAD_HOOKS_H

#include <pthread.h>

#include "checkpoint/view/view.h"
#include "dcp/load_planner.h"
#include "dcp/storage_reader.h"
#include "plan/load/load_plan_view.h"

enum item_step { ITEM_WAITING, ITEM_RESOLVED, ITEM_DONE };

struct load_hooks {
    dcp_load_planner planner;
    dcp_storage_reader storage;
    dcp_checkpoint view;

    bool is_set_up;
    bool is_planned;
    bool unseen; /* with a limit of memory: the library cannot read what the storage reader does */
    struct name_table flat_names; /* -> index into the flat state's entries */
    const char **stored_names;    /* by entry: the name set by dcp_loading_rename(), or NULL */
    struct arena arena;

    struct dcp_load_plan plan;
    struct read_targets targets;
    unsigned char *item_steps; /* by item: its state */
    struct buffer *bytes;      /* by item: memory lent for an object */
    pthread_mutex_t mutex;     /* guards hooks, steps and objects while items are read */
    uint64_t bytes_moved;
};

/* If the options have hooks: copies the planner's table, and gives the load the steps that call
 * it. */
dcp_status load_hooks_take(dcp_loading *loading);
/* The same for the storage reader that takes an id; without one, finds the storage. Resets the
 * reader. */
dcp_status load_hooks_choose_storage(dcp_loading *loading, const char *id);
void load_hooks_free(dcp_loading *loading);

/* Memory of the list of what is read at once. */
uint64_t load_hooks_list_memory(const dcp_loading *loading);

/* ---- the steps (load_steps.h) ---- */

dcp_status load_hooks_read_metadata(dcp_loading *loading, const char *path, struct buffer *raw);
dcp_status load_hooks_plan_local(dcp_loading *loading, dcp_state *state);
dcp_status load_hooks_prepare(dcp_loading *loading, dcp_status status);
dcp_status load_hooks_measure(dcp_loading *loading, dcp_status status);
dcp_status load_hooks_read(dcp_loading *loading);

#endif
