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
    bool state_taken;               /* the state has been flattened */
    bool writer_began;              /* the storage writer was set up, and hears of a failure */
    bool session_wanted;            /* the library has the directory */
    struct name_table names;        /* of the entries of the state */
    struct dcp_save_plan plan;      /* what this rank offers */
    struct dcp_save_plan finished;  /* what it writes: an item for each order */
    size_t *order_of;               /* of the items of finished; NULL: they are in this order */
    uint64_t *stream_offsets;       /* of the objects of the plan, in the local streams */
    struct shard_resolver resolver; /* by the planner */
    pthread_mutex_t mutex;          /* over the results of write_data */

    /* At the coordinator. */
    struct write_results *taken; /* by rank: what the results of all ranks point to */
    int taken_count;
};

/* Where the options have a planner, or a storage writer for the path: takes over the tables, and
 * gives the save the steps that call them. */
dcp_status save_hooks_choose(dcp_saving *saving);
/* The storage writer of the path that the save has now. */
dcp_status save_hooks_choose_again(dcp_saving *saving);
/* That a rank has the same hooks as rank 0. */
dcp_status save_hooks_compare(struct hooks_kind first, struct hooks_kind other, int rank);

/* Whether what is written comes from hooks, and not from the state as it is. */
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
/* Without the storage writer, which could make something. */
dcp_status save_hooks_set_up_dry(dcp_saving *saving, dcp_state *state);
dcp_status save_hooks_set_up_again(dcp_saving *saving);
/* The plan that this rank offers, in saving->local as well. */
dcp_status save_hooks_plan_local(dcp_saving *saving);
dcp_status save_hooks_plan_global(dcp_saving *saving);
dcp_status save_hooks_reuse_plan(dcp_saving *saving, dcp_status status);
/* Makes the finished plan of the orders, and lets finish_plan change it as far as it may. */
dcp_status save_hooks_finish_plan(dcp_saving *saving);
dcp_status save_hooks_write(dcp_saving *saving);
void save_hooks_abandon(dcp_saving *saving);

/* ---- at the coordinator ---- */

dcp_status save_hooks_begin(dcp_saving *saving);
void save_hooks_describe(const dcp_saving *saving, struct metadata *metadata);
/* From all ranks' plans to assignments, which begin with the data that travels with a plan. */
dcp_status save_hooks_assign(dcp_saving *saving, const struct group_messages *plans);
/* Which results to expect of a rank, rank by rank; and where they say that everything lies. */
dcp_status save_hooks_expect_results(dcp_saving *saving, int rank,
                                     const struct write_orders *orders,
                                     const struct save_plan *held);
dcp_status save_hooks_take_results(dcp_saving *saving, const struct group_messages *results);
void save_hooks_forget_results(struct save_hooks *hooks);
dcp_status save_hooks_commit(dcp_saving *saving);

/* ---- resolving ---- */

/* The elements of a box, by the planner; for storage. context: the saving. */
dcp_status save_resolve_box(void *context, const struct write_item *item, struct box box,
                            struct shard_resolved *resolved);
/* What an item is written as, checked. */
dcp_status save_resolve_item(dcp_saving *saving, const dcp_write_item *item, dcp_write_data *data);
/* That the state has the tensor of an item, in a form that can be written as the item says. */
dcp_status save_resolve_check(dcp_saving *saving, const dcp_write_item *item);

#endif
