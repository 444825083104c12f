/* SPDX-License-Identifier: BSD-3-Clause */
/* The steps of a save with a planner or a storage writer: hooks are called where there are any, and
 * the library does what it does by default where there are none. */
#ifndef CHECKPOINT_HOOKS_SAVE_HOOKS_H
#define CHECKPOINT_HOOKS_SAVE_HOOKS_H

#include <pthread.h>

#include "base/name_table.h"
#include "checkpoint/hooks/hooks.h"
#include "checkpoint/hooks/save_plan_view.h"
#include "checkpoint/save/save_steps.h"
#include "dcp/save.h"
#include "dcp/storage_writer.h"
#include "group/group.h"
#include "storage/shard/shard_writer.h"

struct save_hooks {
    dcp_save_planner planner;
    dcp_storage_writer writer;
    dcp_storage_meta storage_meta;
    bool state_taken;          /* the state has been flattened */
    bool writer_began;         /* the storage writer was set up, so failures are reported to it */
    bool session_wanted;       /* the library has the directory */
    struct name_table names;   /* of the entries of the state */
    struct dcp_save_plan plan; /* this rank's local plan */
    struct dcp_save_plan finished;  /* the finished plan: an item for each order */
    size_t *order_of;               /* of the items of finished; NULL: they are in this order */
    uint64_t *stream_offsets;       /* of the objects of the plan, in the local streams */
    struct shard_resolver resolver; /* by the planner */
    pthread_mutex_t mutex;          /* guards the results of write_data */

    /* At the coordinator. */
    struct write_results *taken; /* by rank: memory that the results of all ranks point to */
    int taken_count;
};

/* If the options have a planner, or a storage writer for the path: copies the tables, and gives the
 * save the steps that call them. */
dcp_status save_hooks_choose(dcp_saving *saving);
/* Chooses the storage writer for the save's current path. */
dcp_status save_hooks_choose_again(dcp_saving *saving);
/* Checks that a rank has the same hooks as rank 0. */
dcp_status save_hooks_compare(struct hooks_kind first, struct hooks_kind other, int rank);

/* Whether hooks provide the data to write, instead of the state. */
bool save_hooks_resolve(const struct save_hooks *hooks);

/* The order of an item of the finished plan. */
static inline size_t save_hooks_order(const struct save_hooks *hooks, size_t index)
{
    return hooks->order_of ? hooks->order_of[index] : index;
}

/* Whether all ranks' plans pass through hooks. */
static inline bool save_hooks_plan_for_all(const struct save_hooks *hooks)
{
    return hooks->planner.create_global_plan || hooks->writer.prepare_global_plan;
}

/* ---- the steps, on every rank (save_steps.h) ---- */

dcp_status save_hooks_set_up(dcp_saving *saving, dcp_state *state);
/* Without setting up the storage writer, which could create something. */
dcp_status save_hooks_set_up_dry(dcp_saving *saving, dcp_state *state);
dcp_status save_hooks_set_up_again(dcp_saving *saving);
/* Makes this rank's local plan, in saving->local as well. */
dcp_status save_hooks_plan_local(dcp_saving *saving);
dcp_status save_hooks_plan_global(dcp_saving *saving);
dcp_status save_hooks_reuse_plan(dcp_saving *saving, dcp_status status);
/* Makes the finished plan from the orders; finish_plan may change it within limits. */
dcp_status save_hooks_finish_plan(dcp_saving *saving);
dcp_status save_hooks_write(dcp_saving *saving);
void save_hooks_abandon(dcp_saving *saving);

/* ---- at the coordinator ---- */

dcp_status save_hooks_begin(dcp_saving *saving);
void save_hooks_describe(const dcp_saving *saving, struct metadata *metadata);
/* Makes assignments from all ranks' plans; an assignment begins with the data of the plan. */
dcp_status save_hooks_assign(dcp_saving *saving, const struct group_messages *plans);
/* Sets which results to expect, rank by rank; and puts the places of the results into the
 * metadata. */
dcp_status save_hooks_expect_results(dcp_saving *saving, int rank,
                                     const struct write_orders *orders,
                                     const struct save_plan *held);
dcp_status save_hooks_take_results(dcp_saving *saving, const struct group_messages *results);
void save_hooks_forget_results(struct save_hooks *hooks);
dcp_status save_hooks_commit(dcp_saving *saving);

/* ---- resolving ---- */

/* Gets the elements of a box from the planner, for storage. context: the saving. */
dcp_status save_resolve_box(void *context, const struct write_item *item, struct box box,
                            struct shard_resolved *resolved);
/* Gets the data to write for an item, and checks it. */
dcp_status save_resolve_item(dcp_saving *saving, const dcp_write_item *item, dcp_write_data *data);
/* Checks that the state has the tensor of an item, in a form that can be written as the item
 * says. */
dcp_status save_resolve_check(dcp_saving *saving, const dcp_write_item *item);

#endif
