/* SPDX-License-Identifier: BSD-3-Clause */
/* A load with hooks: what a planner and a storage reader of the caller's own are called for, in the
 * place of the library's own steps. A load without any has nothing to do with it but the choice of
 * the storage.
 *
 * load_open() chooses the storage; loading_plan_local() makes this rank's plan, and after the
 * differences of all ranks have been judged loading_plan_global() gives each rank its final one;
 * loading_read() reads it. */
#ifndef CHECKPOINT_HOOKS_LOADING_H
#define CHECKPOINT_HOOKS_LOADING_H

#include <pthread.h>

#include "checkpoint/load/load_fill.h"
#include "checkpoint/view/view.h"
#include "dcp/storage_reader.h"
#include "plan/load/read_plan.h"
#include "storage/storage.h"

/* What a load has and its hooks work on. */
struct loading_parts {
    const dcp_load_options *options;
    bool coordinates;
    struct load_names *names;
    struct metadata *metadata;
    struct flat_state *flat;
    struct load_plan *made;               /* what the default local plan is made of */
    struct load_differences *differences; /* of this rank */
    struct loaded_objects *objects;
    struct progress *progress;
};

enum loading_step { STEP_WAITING, STEP_RESOLVED, STEP_DONE };

struct dcp_loading {
    dcp_load_planner planner;
    dcp_storage_reader storage;
    bool has_planner;
    bool has_storage;         /* with hooks in planning or reading, and not just other bytes */
    dcp_storage own;          /* of the options */
    const dcp_storage *files; /* where the path is: that, or the file system */
    uint64_t storage_number;  /* see hooks_choose() */
    uint64_t storage_mask;    /* which hooks it has */
    struct loading_parts parts;
    struct shard_reader *reader;
    dcp_checkpoint view;

    bool is_set_up;
    bool is_planned;
    struct name_table flat_names; /* -> index into flat->entries */
    const char **stored_names;    /* of each entry: what dcp_loading_rename() said, or NULL */
    struct arena arena;

    struct dcp_load_plan plan;
    struct read_targets targets;
    unsigned char *steps;  /* of each item: how far it has come */
    struct buffer *bytes;  /* of each item: memory that was lent for an object */
    pthread_mutex_t mutex; /* over hooks, steps and objects while items are read */
    uint64_t bytes_moved;
};

/* Takes the planner of the options; the parts stay the caller's, and must stay where they are. */
dcp_status loading_init(struct dcp_loading *loading, const struct loading_parts *parts);
void loading_free(struct dcp_loading *loading);
static inline bool loading_has_hooks(const struct dcp_loading *loading)
{
    return loading->has_planner || loading->has_storage;
}

/* Chooses the storage for an id, and resets it. */
dcp_status loading_choose_storage(struct dcp_loading *loading, const char *id);
/* What its read_metadata gives, as storage_read_raw() would. */
dcp_status loading_read_metadata(const struct dcp_loading *loading, struct buffer *raw);

/* Sets up both and makes this rank's plan. reader: that of the checkpoint. */
dcp_status loading_plan_local(struct dcp_loading *loading, dcp_state *state,
                              struct shard_reader *reader);
/* Collective; every rank brings its status. */
dcp_status loading_plan_global(struct dcp_loading *loading, dcp_status status);
/* Reads all items; objects wait in parts.objects. */
dcp_status loading_read(struct dcp_loading *loading);
/* Flattens a state as a load does: by the options, and with dicts whole that are stored whole. */
dcp_status load_flatten(const dcp_load_options *options, const struct metadata *metadata,
                        dcp_state *state, struct flat_state *flat);

#endif
