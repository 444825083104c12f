/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/memory_account.h"
#include "base/sized.h"
#include "checkpoint/async/async.h"
#include "checkpoint/hooks/hooks.h"

dcp_status future_new(dcp_save_chain *chain, const char *path, dcp_future **future)
{
    dcp_future *made = memory_allocate_zeroed(1, sizeof *made);
    pthread_condattr_t attributes;
    if (!made)
        return error_no_memory(sizeof *made, "a future");
    made->path = memory_copy_text(path ? path : "");
    if (!made->path) {
        memory_release(made);
        return error_no_memory(path ? strlen(path) + 1 : 1, "a path");
    }
    atomic_init(&made->references, 1);
    atomic_fetch_add(&chain->references, 1);
    made->chain = chain;
    pthread_mutex_init(&made->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&made->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    *future = made;
    return DCP_OK;
}

/* Frees the save's resources, when it is over or has not begun; keeps the figures. */
static void free_saving(dcp_future *future)
{
    const dcp_stager *stager = future->chain->options.stager;
    staging_free(future->staged.staging);
    memory_release(future->staged.sources);
    memory_release(future->digests);
    if (future->stager_begun && stager->release)
        stager->release(stager->context);
    dcp_state_free(future->tree);
    dcp_state_free(future->info);
    save_extra_files_free(&future->saving.extra_files);
    memory_release(future->id);
    memory_release(future->fallback);
    memory_release(future->fallback_id);
}

/* The thread's reference is the last one only if the others no longer wait for its end. */
void future_release(dcp_future *future)
{
    if (atomic_fetch_sub(&future->references, 1) > 1)
        return;
    if (future->threaded && !future->joined)
        thread_leave(&future->thread);
    if (future->state == DCP_FUTURE_WRITTEN)
        future_give_up(future, dcp_error_set(DCP_ERR_CANCELLED,
                                             "the future of the save to %s was freed before all "
                                             "ranks waited for it: not committed",
                                             future->path));
    free_saving(future);
    chain_release(future->chain);
    pthread_cond_destroy(&future->changed);
    pthread_mutex_destroy(&future->mutex);
    memory_release(future->path);
    memory_release(future);
}

void future_advance(dcp_future *future, dcp_future_state state)
{
    pthread_mutex_lock(&future->mutex);
    future->state = state;
    pthread_cond_broadcast(&future->changed);
    pthread_mutex_unlock(&future->mutex);
}

dcp_status future_synchronize(dcp_future *future)
{
    const dcp_stager *stager = future->chain->options.stager;
    dcp_status status = DCP_OK;
    pthread_mutex_lock(&future->mutex);
    while (future->synchronizing)
        pthread_cond_wait(&future->changed, &future->mutex);
    bool ours = !future->synchronized && stager->synchronize;
    future->synchronizing = ours;
    pthread_mutex_unlock(&future->mutex);
    if (!ours)
        return DCP_OK;
    error_clear();
    status = hook_status(stager->synchronize(stager->context), "synchronize");
    pthread_mutex_lock(&future->mutex);
    future->synchronizing = false;
    future->synchronized = status == DCP_OK;
    pthread_cond_broadcast(&future->changed);
    pthread_mutex_unlock(&future->mutex);
    return status;
}

const char *dcp_future_message(dcp_future *future)
{
    if (!future)
        return "";
    pthread_mutex_lock(&future->mutex);
    const char *message = future->state == DCP_FUTURE_FAILED ? future->error.text : "";
    pthread_mutex_unlock(&future->mutex);
    return message;
}

dcp_status dcp_future_figures(dcp_future *future, dcp_figures *figures)
{
    if (!future || !figures)
        return dcp_error_set(DCP_ERR_ARGUMENT, "dcp_future_figures: %s is NULL",
                             future ? "figures" : "future");
    RETURN_IF_ERROR(operation_check_figures(figures));
    pthread_mutex_lock(&future->mutex);
    dcp_figures ours = future->figures;
    pthread_mutex_unlock(&future->mutex);
    ours.size_of = figures->size_of;
    sized_write(figures, figures->size_of, &ours, sizeof ours);
    return DCP_OK;
}

void dcp_future_progress(dcp_future *future, uint64_t *done, uint64_t *total)
{
    if (done)
        *done = future ? atomic_load(&future->bytes_done) : 0;
    if (total)
        *total = future ? atomic_load(&future->bytes_total) : 0;
}

void dcp_future_cancel(dcp_future *future)
{
    if (future)
        atomic_store(&future->cancelled, true);
}

void dcp_future_free(dcp_future *future)
{
    struct saved_error error;
    if (!future)
        return;
    error_save(&error);
    future_await_end(future, future->chain->options.exit_seconds);
    error_restore(&error);
    future_release(future);
}
