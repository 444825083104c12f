/* SPDX-License-Identifier: BSD-3-Clause */
/* Asynchronous saves: a chain of them, each with a future.
 *
 * The caller's thread plans and begins to copy (async_save.c, async_stage.c). The future's thread
 * waits for the copies, writes, and commits (async_run.c). If the group allows no second thread,
 * the commit happens when all ranks wait (async_wait.c). */
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
    dcp_group *
        background; /* for the commits; NULL: a single process, or the group cannot be duplicated */
    bool in_background;
    struct staging_pool pool; /* used by the save under way */
    dcp_future *last;         /* the newest save; a reference of its own */
    atomic_int references;
};

struct future_listener;

struct dcp_future {
    dcp_save_chain *chain;
    dcp_state *tree; /* what is saved: a copy of the caller's tree, or the stager's */
    dcp_state *info;
    char *path;
    char *id; /* the path in a form that means the same later; NULL: not known */
    char *fallback;
    char *fallback_id;
    bool nowhere; /* there was no place to write to; the message says why */
    struct dcp_saving saving;
    struct staged_orders staged;
    uint64_t *digests; /* by order: digest of what it writes */
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

    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t changed;
    dcp_future_state state;
    bool synchronizing;                /* some thread is in the stager's synchronize */
    bool synchronized;                 /* the stager's copy is whole */
    bool concluding;                   /* a thread is committing */
    bool joined;                       /* the thread has been joined, or is being joined */
    bool heard;                        /* the result has been returned to the caller */
    struct saved_error error;          /* of the write while it is WRITTEN; then of the save */
    dcp_figures figures;               /* when it is over */
    struct future_listener *listeners; /* called when it is over */
    bool notifies;                     /* they are being called, by this thread: */
    pthread_t notifier;
    dcp_future *previous, *next; /* in the list of futures that exit waits for */
};

/* ---- async_chain.c ---- */

void chain_release(dcp_save_chain *chain);
/* Waits for the newest save to end, or refuses, as the options say; then the pool is free. Returns
 * that save's failure if it was not returned before. Collective. */
dcp_status chain_enter(dcp_save_chain *chain);
/* Whether a save that failed may need its copy for another attempt. */
bool chain_may_try_again(const dcp_save_chain_options *options);
/* A copy of its own of the options. */
dcp_status chain_make(const dcp_save_chain_options *options, dcp_save_chain **chain);

/* ---- async_future.c ---- */

dcp_status future_new(dcp_save_chain *chain, const char *path, dcp_future **future);
void future_release(dcp_future *future);
/* Sets the state, and wakes waiting threads. */
void future_advance(dcp_future *future, dcp_future_state state);
/* Waits for the stager's copy. */
dcp_status future_synchronize(dcp_future *future);

/* ---- async_done.c ---- */

/* Calls the listeners of a save that is over, and frees their list. Keeps the calling thread's
 * error. */
void future_notify(dcp_future *future, struct future_listener *listeners,
                   const struct saved_error *error);
/* Whether the calling thread is in such a function; with the mutex held. */
bool future_is_notifier(const dcp_future *future);

/* ---- async_stage.c ---- */

/* Describes how saves of the chain copy. */
void chain_describe_staging(const dcp_save_chain *chain, struct dcp_saving *saving);
/* Begins to copy the tensors of the orders. After that, only the memory of tensors is used from the
 * caller's tree. */
dcp_status future_stage(dcp_future *future);
/* After planning again: finds the copies for the new orders. */
dcp_status future_rematch(dcp_future *future);
/* For saves with hooks, before they plan: copies all tensors, and refers to the copies. */
dcp_status future_stage_tree(dcp_future *future);

/* ---- async_run.c ---- */

/* Starts the thread; if that fails, does all the work in the calling thread. */
void future_start(dcp_future *future);
/* Commits, or makes further attempts if the chain allows them; then the save is over.
 * Collective. */
void future_conclude(dcp_future *future);
/* Ends the save without a commit, with its own failure if it has one, otherwise with this status
 * and the calling thread's message. */
void future_give_up(dcp_future *future, dcp_status status);

/* ---- async_wait.c ---- */

/* dcp_future_wait() by a caller that ignores the result. */
dcp_status future_await(dcp_future *future, double timeout_seconds);
/* The same, and joins the thread if the save has ended. */
dcp_status future_await_end(dcp_future *future, double timeout_seconds);

/* ---- async_exit.c ---- */

void exit_add(dcp_future *future);
void exit_remove(dcp_future *future);

#endif
