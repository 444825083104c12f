/* SPDX-License-Identifier: BSD-3-Clause */
/* The background part of an asynchronous save. */
#include <math.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory_account.h"
#include "checkpoint/async/async.h"
#include "checkpoint/save/replica_check.h"
#include "group/group.h"

/* The longest pause between attempts, in seconds. */
#define LONGEST_PAUSE 3600.0

static double shorter(double seconds)
{
    return seconds < LONGEST_PAUSE ? seconds : LONGEST_PAUSE;
}

/* Failures that another attempt or place may avoid. All ranks have the same status. */
static bool may_pass(dcp_status status)
{
    return saving_failed_place(status) || status == DCP_ERR_NO_MEMORY;
}

static dcp_status write(dcp_future *future)
{
    struct staging *staging = future->staged.staging;
    dcp_status status = DCP_OK;
    if (future->stager_begun)
        status = future_synchronize(future);
    if (status == DCP_OK)
        status = saving_write(&future->saving);
    /* The writer may not have needed all copies; changes are detected when all are made. */
    if (staging && status == DCP_OK)
        status = staging_wait(staging, deadline_after(INFINITY));
    return status;
}

/* Another attempt, in the same directory or another one. */
static dcp_status write_again(dcp_future *future, const char *path, const char *id)
{
    struct dcp_saving *saving = &future->saving;
    dcp_status status = saving_plan_again(saving, path, id);
    if (!saving->assigned)
        return status;
    status = replica_check_run(saving, status);
    if (status == DCP_OK)
        status = future_rematch(future);
    if (status == DCP_OK)
        status = write(future);
    return saving_finish(saving, status);
}

/* The message names the original path, too. */
static dcp_status fall_back(dcp_future *future)
{
    struct saved_error first, second;
    error_save(&first);
    log_line(DCP_LOG_WARNING, "saving to %s failed, falling back to %s: %s", future->path,
             future->fallback, first.text);
    dcp_status status = write_again(future, future->fallback, future->fallback_id);
    if (status == DCP_OK)
        return DCP_OK;
    error_save(&second);
    return dcp_error_set(status, "saving to %s failed: %.400s; falling back to %s failed: %.400s",
                         future->path, first.text, future->fallback, second.text);
}

/* After the last attempt, if an earlier one has left a checkpoint. */
static dcp_status explain_in_place(const dcp_future *future, dcp_status status)
{
    struct saved_error error;
    if (status == DCP_OK || status == DCP_ERR_UNCONFIRMED)
        return status;
    error_save(&error);
    return dcp_error_set(DCP_ERR_UNCONFIRMED,
                         "%s: an earlier attempt was committed, but a power failure may undo "
                         "that, and the last attempt failed: %s: %.600s",
                         future->path, dcp_status_string(status), error.text);
}

/* Whether any rank has made room. Otherwise the failure stays the thread's error. */
static bool has_room(const dcp_future *future, dcp_status status)
{
    const dcp_save_chain_options *options = &future->chain->options;
    struct dcp_collective call = {"making room", future->saving.options.timeout_seconds};
    struct saved_error error;
    const unsigned char *answers;
    bool has = false;
    if (status != DCP_ERR_NO_SPACE || !options->make_room)
        return false;
    error_save(&error);
    unsigned char own = options->make_room(options->make_room_context);
    dcp_group *group = future->saving.options.group;
    if (group_share(group, &call, DCP_OK, &own, sizeof own, &answers) == DCP_OK)
        for (int rank = 0; rank < dcp_group_size(group); rank++)
            has = has || answers[rank];
    error_restore(&error);
    if (has)
        log_line(DCP_LOG_WARNING, "saving to %s failed, trying again as there is more room: %s",
                 future->path, error.text);
    return has;
}

static dcp_status try_again(dcp_future *future, dcp_status status)
{
    const dcp_save_chain_options *options = &future->chain->options;
    const struct dcp_saving *saving = &future->saving;
    double seconds = shorter(options->retry_seconds);
    bool in_place = saving->in_place;
    while (has_room(future, status)) {
        status = write_again(future, future->path, future->id);
        in_place = in_place || saving->in_place;
    }
    for (int32_t i = 0; i < options->retries && (may_pass(status) || saving->in_place); i++) {
        log_line(DCP_LOG_WARNING, "saving to %s failed, trying again in %g s: %s", future->path,
                 seconds, dcp_error_message());
        clock_sleep_ns((int64_t)(seconds * 1e9));
        status = write_again(future, future->path, future->id);
        in_place = in_place || saving->in_place;
        seconds = shorter(2 * seconds);
    }
    if (future->fallback && (may_pass(status) || saving->in_place))
        status = fall_back(future);
    return in_place ? explain_in_place(future, status) : status;
}

/* After the state is set, the caller may free the future. */
static void end(dcp_future *future, dcp_status status)
{
    struct saved_error error = {.status = DCP_OK};
    dcp_figures figures = {.size_of = sizeof figures};
    if (status != DCP_OK) {
        error_save(&error);
        error.status = status;
    }
    if (status != DCP_OK && future->chain->options.log_failures)
        log_line(DCP_LOG_WARNING, "saving to %s failed: %s", future->path, error.text);
    /* From here on, the tensors and the pool may be reused. */
    staging_end(future->staged.staging);
    staging_pool_leave(&future->chain->pool);
    saving_free(&future->saving);
    operation_finish(&future->saving.operation, &figures);
    pthread_mutex_lock(&future->mutex);
    future->error = error;
    future->figures = figures;
    future->state = status == DCP_OK ? DCP_FUTURE_DONE : DCP_FUTURE_FAILED;
    struct future_listener *listeners = future->listeners;
    future->listeners = NULL;
    future->heard = future->heard || listeners;
    pthread_cond_broadcast(&future->changed);
    pthread_mutex_unlock(&future->mutex);
    /* Exit waits for these functions, too. */
    future_notify(future, listeners, &error);
    exit_remove(future);
}

static void enter_account(dcp_future *future)
{
    struct operation *operation = &future->saving.operation;
    operation->account_before = memory_account_enter(operation->account);
}

void future_conclude(dcp_future *future)
{
    enter_account(future);
    dcp_status status = future->error.status;
    if (status != DCP_OK)
        error_restore(&future->error);
    if (!future->nowhere)
        status = saving_finish(&future->saving, status);
    if (status != DCP_OK)
        status = try_again(future, status);
    end(future, status);
}

void future_give_up(dcp_future *future, dcp_status status)
{
    enter_account(future);
    if (future->error.status != DCP_OK)
        status = error_restore(&future->error);
    end(future, status);
}

static void *run(void *argument)
{
    dcp_future *future = argument;
    dcp_status status = future->nowhere ? DCP_OK : write(future);
    if (status != DCP_OK) {
        error_save(&future->error);
        future->error.status = status;
    }
    if (future->in_background)
        future_conclude(future);
    else
        future_advance(future, DCP_FUTURE_WRITTEN);
    future_release(future);
    return NULL;
}

void future_start(dcp_future *future)
{
    atomic_fetch_add(&future->references, 1);
    future->threaded = thread_start(&future->thread, run, future) == 0;
    if (!future->threaded)
        run(future);
}
