/* SPDX-License-Identifier: BSD-3-Clause */
/* Waits for a save. If the group allows no second thread, waiting commits: on all ranks or on
 * none. */
#include <math.h>

#include "base/error.h"
#include "checkpoint/async/async.h"
#include "group/group.h"

static dcp_status make_deadline(const dcp_future *future, double seconds, struct deadline *deadline)
{
    if (!future)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the future is NULL");
    if (isnan(seconds))
        return dcp_error_set(DCP_ERR_ARGUMENT, "timeout_seconds is not a number");
    *deadline = deadline_after(seconds < 0 ? INFINITY : seconds);
    return DCP_OK;
}

/* Waits until the state is at least this one, or until the deadline; returns the state. */
static dcp_future_state await_state(dcp_future *future, dcp_future_state state,
                                    struct deadline deadline)
{
    pthread_mutex_lock(&future->mutex);
    while (future->state < state && !deadline_passed(deadline)) {
        struct timespec time = deadline_timespec(deadline);
        pthread_cond_timedwait(&future->changed, &future->mutex, &time);
    }
    dcp_future_state found = future->state;
    pthread_mutex_unlock(&future->mutex);
    return found;
}

/* The current state. Asking for it is what notices that staging has ended. */
static dcp_future_state look(dcp_future *future)
{
    struct staging *staging = future->staged.staging;
    pthread_mutex_lock(&future->mutex);
    bool staged =
        (!staging || staging_is_over(staging)) && (!future->stager_begun || future->synchronized ||
                                                   !future->chain->options.stager->synchronize);
    if (future->state == DCP_FUTURE_STAGING && staged)
        future->state = DCP_FUTURE_WRITING;
    dcp_future_state state = future->state;
    pthread_mutex_unlock(&future->mutex);
    return state;
}

/* Whether all ranks have written. */
static dcp_status ask_all(dcp_future *future, dcp_future_state state, bool *all_written)
{
    struct dcp_collective call = {"asking whether all ranks have written",
                                  future->saving.options.timeout_seconds};
    dcp_group *group = future->saving.options.group;
    unsigned char written = state >= DCP_FUTURE_WRITTEN;
    const unsigned char *answers;
    *all_written = true;
    group_enter(group, "dcp_future_wait");
    dcp_status status = group_share(group, &call, DCP_OK, &written, sizeof written, &answers);
    for (int rank = 0; rank < dcp_group_size(group) && status == DCP_OK; rank++)
        *all_written = *all_written && answers[rank];
    return status;
}

/* Commits if all ranks have written. If the group fails, no rank can commit any more. */
static void commit_if_written(dcp_future *future, dcp_future_state state)
{
    bool all_written;
    pthread_mutex_lock(&future->mutex);
    bool ours = !future->concluding && future->state < DCP_FUTURE_DONE;
    future->concluding = future->concluding || ours;
    pthread_mutex_unlock(&future->mutex);
    if (!ours)
        return;
    dcp_status status = ask_all(future, state, &all_written);
    if (status == DCP_OK && all_written)
        future_conclude(future);
    else if (status != DCP_OK && state >= DCP_FUTURE_WRITTEN)
        future_give_up(future, status);
    pthread_mutex_lock(&future->mutex);
    future->concluding = false;
    pthread_cond_broadcast(&future->changed);
    pthread_mutex_unlock(&future->mutex);
}

static dcp_status how_it_ended(dcp_future *future, const char *what)
{
    dcp_status status;
    pthread_mutex_lock(&future->mutex);
    if (future->state == DCP_FUTURE_DONE)
        status = DCP_OK;
    else if (future->state == DCP_FUTURE_FAILED)
        status = error_restore(&future->error);
    else
        status = dcp_error_set(DCP_ERR_TIMEOUT, "the save to %s is not %s yet", future->path, what);
    pthread_mutex_unlock(&future->mutex);
    return status;
}

dcp_status future_await(dcp_future *future, double timeout_seconds)
{
    struct deadline deadline;
    RETURN_IF_ERROR(make_deadline(future, timeout_seconds, &deadline));
    if (future->in_background) {
        await_state(future, DCP_FUTURE_DONE, deadline);
    } else {
        dcp_future_state state = await_state(future, DCP_FUTURE_WRITTEN, deadline);
        if (state < DCP_FUTURE_DONE)
            commit_if_written(future, state);
    }
    return how_it_ended(future, "over");
}

dcp_status future_await_end(dcp_future *future, double timeout_seconds)
{
    dcp_status status = future_await(future, timeout_seconds);
    pthread_mutex_lock(&future->mutex);
    bool joins = future->state >= DCP_FUTURE_DONE && future->threaded && !future->joined &&
                 !future_is_notifier(future);
    future->joined = future->joined || joins;
    pthread_mutex_unlock(&future->mutex);
    if (joins)
        thread_join(&future->thread);
    return status;
}

/* A function called during the commit may free the future, so take a reference. */
static dcp_future *refer(dcp_future *future)
{
    atomic_fetch_add(&future->references, 1);
    return future;
}

dcp_status dcp_future_wait(dcp_future *future, double timeout_seconds)
{
    if (!future)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the future is NULL");
    refer(future);
    dcp_status status = future_await(future, timeout_seconds);
    pthread_mutex_lock(&future->mutex);
    future->heard = future->heard || future->state >= DCP_FUTURE_DONE;
    pthread_mutex_unlock(&future->mutex);
    future_release(future);
    return status;
}

dcp_future_state dcp_future_poll(dcp_future *future)
{
    dcp_future_state state;
    if (!future)
        return DCP_FUTURE_FAILED;
    refer(future);
    state = look(future);
    if (!future->in_background && state < DCP_FUTURE_DONE) {
        commit_if_written(future, state);
        state = look(future);
    }
    future_release(future);
    return state;
}

dcp_status dcp_future_wait_staged(dcp_future *future, double timeout_seconds)
{
    struct deadline deadline;
    RETURN_IF_ERROR(make_deadline(future, timeout_seconds, &deadline));
    if (future->stager_begun && timeout_seconds != 0)
        return future_synchronize(future);
    if (look(future) != DCP_FUTURE_STAGING)
        return DCP_OK;
    return future->staged.staging ? staging_wait(future->staged.staging, deadline)
                                  : how_it_ended(future, "staged");
}
