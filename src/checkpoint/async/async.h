/* SPDX-License-Identifier: BSD-3-Clause */
/* Asynchronous saves: a chain of them, and the future that stands for each.
 *
 * The caller's thread plans and begins to copy (async_save.c, async_stage.c); a thread of the
 * future's own waits for the copies, writes, and commits (async_run.c). Where the group allows no
 * second thread, the commit is left to whoever waits next (async_wait.c). */
#ifndef CHECKPOINT_ASYNC_ASYNC_H
#define CHECKPOINT_ASYNC_ASYNC_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/thread.h"
#include "checkpoint/save/saving.h"
#include "dcp/async.h"
#include "device/staging.h"

/* Lives as long as its handle and its futures. */
struct dcp_save_chain {
    dcp_save_chain_options options; /* texts copied */
    dcp_group *background;          /* for the commits; NULL: one process, or none can be had */
    bool in_background;
    struct staging_pool pool; /* of the save that is under way */
    dcp_future *last;         /* the newest save; a reference of its own */
    atomic_int references;
};

struct future_listener;

struct dcp_future {
    dcp_save_chain *chain;
    dcp_state *tree; /* what is saved: a copy of the caller's, or what the stager made */
    dcp_state *info;
    char *path;
    char *id; /* what the path meant when the call was made; NULL: not known */
    char *fallback;
    char *fallback_id;
    bool nowhere; /* there was no place to write to: its story says why */
    struct dcp_saving saving;
    struct staged_orders staged;
    uint64_t *digests; /* by order: what it is about */
    size_t order_count;
    dcp_progress_function progress; /* the caller's */
    void *progress_context;
    bool stager_begun;
    bool in_background; /* the thread commits */
    struct thread thread;
    bool threaded;
    atomic_bool cancelled;
    atomic_uint_fast64_t bytes_done, bytes_total;
    atomic_int references; /* the caller's, the chain's, the thread's */

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    dcp_future_state state;
    bool synchronizing;                /* some thread is in the stager's synchronize */
    bool synchronized;                 /* the stager's copy is whole */
    bool concluding;                   /* some thread commits */
    bool joined;                       /* the thread has ended, or somebody waits for that */
    bool heard;                        /* somebody knows how it ended */
    struct error_story story;          /* of the write while it is WRITTEN; then of the save */
    dcp_figures figures;               /* when it is over */
    struct future_listener *listeners; /* called when it is over */
    bool notifies;                     /* they are being called, by this thread: */
    pthread_t notifier;
    dcp_future *previous, *next; /* of those that the end of the program waits for */
};

/* ---- async_chain.c ---- */

void chain_release(dcp_save_chain *chain);
/* Waits for the newest save to end, or refuses, as the options say; then the pool is free. Returns
 * its failure if nobody has heard of it. Collective. */
dcp_status chain_enter(dcp_save_chain *chain);
/* A copy of its own of the options. */
dcp_status chain_make(const dcp_save_chain_options *options, dcp_save_chain **chain);

/* ---- async_future.c ---- */

dcp_status future_new(dcp_save_chain *chain, const char *path, dcp_future **future);
void future_release(dcp_future *future);
/* Sets the state, and wakes who waits. */
void future_advance(dcp_future *future, dcp_future_state state);
/* Waits for the stager's copy. */
dcp_status future_synchronize(dcp_future *future);

/* ---- async_done.c ---- */

/* Calls the listeners of a save that is over and frees their list, which was the future's. The
 * story of the calling thread is kept. */
void future_notify(dcp_future *future, struct future_listener *listeners,
                   const struct error_story *story);
/* Whether the calling thread is in such a function; with the mutex held. */
bool future_is_notifier(const dcp_future *future);

/* ---- async_stage.c ---- */

/* What copying for a save of the chain is like. */
void chain_describe_staging(const dcp_save_chain *chain, struct save_staging *staging);
/* Begins to copy what the orders are about; on return nothing refers to the caller's tree but the
 * memory of its tensors. */
dcp_status future_stage(dcp_future *future);
/* When the save was planned again: finds the copies for its orders. */
dcp_status future_rematch(dcp_future *future);
/* For saves with hooks, before they plan: copies all tensors, and refers to the copies. */
dcp_status future_stage_tree(dcp_future *future);

/* ---- async_run.c ---- */

/* Starts the thread; if there is none to be had, everything happens here and now. */
void future_start(dcp_future *future);
/* Commits, and tries again where the chain says so; then the save is over. Collective. */
void future_conclude(dcp_future *future);
/* What was written is not to be committed: the save is over with a failure of its own, or with this
 * one, whose story the calling thread has. */
void future_give_up(dcp_future *future, dcp_status status);

/* ---- async_wait.c ---- */

/* dcp_future_wait() by somebody who does not care how it ended. */
dcp_status future_await(dcp_future *future, double timeout_seconds);
/* The same, and then the thread has ended as well, if the save has. */
dcp_status future_await_end(dcp_future *future, double timeout_seconds);

/* ---- async_exit.c ---- */

void exit_add(dcp_future *future);
void exit_remove(dcp_future *future);

#endif
