/* SPDX-License-Identifier: BSD-3-Clause */
/* A save with a planner or a storage writer of the caller's own: the steps of saving.h, with hooks
 * called where they are and the library's own doing where they are not. */
#ifndef CHECKPOINT_HOOKS_SAVE_HOOKS_H
#define CHECKPOINT_HOOKS_SAVE_HOOKS_H

#include <pthread.h>

#include "base/name_table.h"
#include "checkpoint/hooks/hooks.h"
#include "checkpoint/hooks/save_plan_view.h"
#include "dcp/save.h"
#include "dcp/storage_writer.h"
#include "group/group.h"
#include "storage/shard/shard_writer.h"

struct save_hooks {
    bool any;                /* else nothing of what follows is used */
    uint64_t storage_number; /* of hooks_choose() */
    dcp_save_planner planner;
    dcp_storage_writer writer;
    dcp_storage_meta storage_meta;
    bool state_taken;               /* the state has been flattened */
    bool writer_began;              /* the storage writer was set up, and is told of a failure */
    bool session_wanted;            /* the directory is the library's own affair */
    struct name_table names;        /* of the entries of the state */
    struct dcp_save_plan plan;      /* what this rank offers */
    struct dcp_save_plan finished;  /* what it writes: an item for each order */
    uint64_t *stream_offsets;       /* of the objects of the plan, in the local streams */
    struct shard_resolver resolver; /* by the planner */
    pthread_mutex_t mutex;          /* over the results of write_data */

    /* At the coordinator. */
    dcp_state *planner_root;       /* that the planner's data for the metadata is in */
    const dcp_state *planner_data; /* NULL: the paths of names */
    dcp_write_result *all_results;
    size_t all_result_count;
    struct write_results *taken; /* by rank: what all_results point to */
    int taken_count;
};

/* Copies the tables, of the storage that takes the path, unless status is a failure already. *hooks
 * is safe to free in any case. */
dcp_status save_hooks_init(struct save_hooks *hooks, const dcp_save_options *options,
                           const char *path, dcp_status status);
void save_hooks_free(struct save_hooks *hooks);
/* Which hooks there are, as a message has it; and whether those of another rank are the same. */
void save_hooks_append(const struct save_hooks *hooks, struct buffer *out);
dcp_status save_hooks_compare(const struct save_hooks *hooks, struct reader *reader);
/* All that is compared, as a number. */
uint64_t save_hooks_kind(const struct save_hooks *hooks);

/* Whether what is written comes from hooks, and not from the state as it is. */
bool save_hooks_resolve(const struct save_hooks *hooks);
/* Whether shard files of our own may be there. */
bool save_hooks_own_files(const struct save_hooks *hooks);

/* ---- the steps, on every rank ---- */

dcp_status save_hooks_set_up(dcp_saving *saving, dcp_state *state);
/* The plan that this rank offers, in saving->local as well. */
dcp_status save_hooks_plan_local(dcp_saving *saving);
/* From all ranks' plans to the orders. */
dcp_status save_hooks_plan(dcp_saving *saving);
/* Whether what comes of that depends on nothing but the plans that ranks offer: the orders and the
 * metadata can be kept then. */
bool save_hooks_plan_keeps(const struct save_hooks *hooks);
/* The same with orders that were kept; status: how this rank came to them. */
dcp_status save_hooks_plan_again(dcp_saving *saving, dcp_status status);
/* When the orders have come, or could not be decoded: on all ranks or on none. */
dcp_status save_hooks_finish_plan(dcp_saving *saving, dcp_status status);
dcp_status save_hooks_write(dcp_saving *saving);
void save_hooks_abandon(dcp_saving *saving);

/* ---- at the coordinator ---- */

/* From all ranks' plans to assignments, which begin with the data that travels with a plan. */
dcp_status save_hooks_plan_global(dcp_saving *saving, const struct group_messages *messages);
/* What the metadata gets besides what was planned. */
void save_hooks_describe(const dcp_saving *saving, struct metadata *metadata);
/* Which results to expect of a rank, rank by rank; and where they say that everything lies. */
dcp_status save_hooks_expect_results(dcp_saving *saving, int rank,
                                     const struct write_orders *orders,
                                     const struct save_plan *held);
dcp_status save_hooks_take_results(dcp_saving *saving, const struct group_messages *messages);
dcp_status save_hooks_finish(dcp_saving *saving);

/* ---- resolving ---- */

/* The elements of a box, by the planner; for storage. context: the saving. */
dcp_status save_resolve_box(void *context, const struct write_item *item, struct box box,
                            struct shard_resolved *resolved);
/* What an item is written as, checked. */
dcp_status save_resolve_item(dcp_saving *saving, const dcp_write_item *item, dcp_write_data *data);
/* That the state has the tensor of an item, in a form that can be written as the item says. */
dcp_status save_resolve_check(dcp_saving *saving, const dcp_write_item *item);

#endif
