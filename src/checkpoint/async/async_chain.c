/* SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "checkpoint/async/async.h"
#include "checkpoint/operation/options.h"
#include "group/group.h"

/* More threads do not speed up page faults. */
#define RESERVING_THREADS 4

bool chain_may_try_again(const dcp_save_chain_options *options)
{
    return options->retries > 0 || options->fallback_path || options->make_room;
}

static dcp_status check_seconds(const char *field, double *seconds, double otherwise)
{
    if (!isfinite(*seconds) || *seconds < 0)
        return dcp_error_set(DCP_ERR_ARGUMENT, "%s is %g, expected a positive number", field,
                             *seconds);
    if (*seconds == 0)
        *seconds = otherwise;
    return DCP_OK;
}

static dcp_status check_staging(const dcp_save_chain_options *options)
{
    const dcp_stager *stager = options->stager;
    if ((unsigned)options->staging > DCP_STAGING_OVERLAPPED)
        return dcp_error_set(DCP_ERR_ARGUMENT, "staging is %d, which is not a defined value",
                             (int)options->staging);
    if (options->staging_limit != 0 && options->staging_limit < STAGING_LIMIT_MINIMUM)
        return dcp_error_set(DCP_ERR_ARGUMENT, "staging_limit is %llu, expected 0 or at least %llu",
                             (unsigned long long)options->staging_limit,
                             (unsigned long long)STAGING_LIMIT_MINIMUM);
    if (options->staging_threads < 0 || options->staging_threads > DCP_MAX_THREADS)
        return dcp_error_set(DCP_ERR_ARGUMENT, "staging_threads is %d, expected 0 to %d",
                             options->staging_threads, DCP_MAX_THREADS);
    if (options->retries < 0 || options->retries > 1000)
        return dcp_error_set(DCP_ERR_ARGUMENT, "retries is %d, expected 0 to 1000",
                             options->retries);
    if (chain_may_try_again(options) && options->staging_limit != 0)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "retries, fallback_path and make_room need the whole copy in memory: "
                             "leave out staging_limit");
    if (stager && stager->size_of < sizeof *stager)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the stager has size_of %zu, expected %zu",
                             stager->size_of, sizeof *stager);
    if (stager && (!stager->stage || (stager->synchronize_at_once && !stager->synchronize)))
        return dcp_error_set(DCP_ERR_ARGUMENT, "the stager lacks %s",
                             stager->stage ? "synchronize" : "stage");
    return DCP_OK;
}

static dcp_status check_options(dcp_save_chain_options *options)
{
    if ((unsigned)options->when_busy > DCP_BUSY_REFUSE)
        return dcp_error_set(DCP_ERR_ARGUMENT, "when_busy is %d, which is not a defined value",
                             (int)options->when_busy);
    RETURN_IF_ERROR(check_seconds("timeout_seconds", &options->timeout_seconds,
                                  OPTIONS_DEFAULT_TIMEOUT_SECONDS));
    RETURN_IF_ERROR(check_seconds("retry_seconds", &options->retry_seconds, 1));
    RETURN_IF_ERROR(
        check_seconds("exit_seconds", &options->exit_seconds, OPTIONS_DEFAULT_TIMEOUT_SECONDS));
    return check_staging(options);
}

/* A stager and a text of its own. */
static dcp_status keep_options(dcp_save_chain *chain, const dcp_save_chain_options *options)
{
    chain->options = *options;
    chain->options.stager = NULL;
    chain->options.fallback_path = NULL;
    if (options->stager) {
        dcp_stager *stager = memory_allocate(sizeof *stager);
        if (!stager)
            return error_no_memory(sizeof *stager, "a stager");
        *stager = *options->stager;
        chain->options.stager = stager;
    }
    if (options->fallback_path) {
        chain->options.fallback_path = memory_copy_text(options->fallback_path);
        if (!chain->options.fallback_path)
            return error_no_memory(strlen(options->fallback_path) + 1, "a path");
    }
    return DCP_OK;
}

void chain_release(dcp_save_chain *chain)
{
    if (atomic_fetch_sub(&chain->references, 1) > 1)
        return;
    staging_pool_free(&chain->pool);
    dcp_group_free(chain->background);
    memory_release((void *)(uintptr_t)chain->options.stager);
    memory_release((void *)(uintptr_t)chain->options.fallback_path);
    memory_release(chain);
}

/* If the group cannot be duplicated, commits wait for the caller. */
static dcp_status find_background(dcp_save_chain *chain)
{
    dcp_group *group = chain->options.group;
    dcp_status status =
        dcp_group_duplicate(group, chain->options.timeout_seconds, &chain->background);
    chain->in_background = status == DCP_OK;
    group_enter(chain->background, "dcp_save_async");
    return status == DCP_ERR_UNSUPPORTED ? DCP_OK : status;
}

dcp_status chain_make(const dcp_save_chain_options *given, dcp_save_chain **chain)
{
    dcp_save_chain_options options = *given;
    dcp_status status = check_options(&options);
    dcp_save_chain *made = NULL;
    if (status == DCP_OK) {
        made = memory_allocate_zeroed(1, sizeof *made);
        status = made ? DCP_OK : error_no_memory(sizeof *made, "a chain of saves");
    }
    if (made) {
        atomic_init(&made->references, 1);
        status = keep_options(made, &options);
    }
    struct dcp_collective call = {"making a chain of saves", options.timeout_seconds > 0
                                                                 ? options.timeout_seconds
                                                                 : OPTIONS_DEFAULT_TIMEOUT_SECONDS};
    group_enter(options.group, "dcp_save_chain_new");
    status = group_agree(options.group, &call, status);
    if (status == DCP_OK && made)
        status = find_background(made);
    if (status == DCP_OK)
        *chain = made;
    else if (made)
        chain_release(made);
    return status;
}

dcp_status dcp_save_chain_new_sized(const dcp_save_chain_options *options, size_t options_size,
                                    dcp_save_chain **chain)
{
    dcp_save_chain_options ours;
    if (!chain)
        return dcp_error_set(DCP_ERR_ARGUMENT, "dcp_save_chain_new: chain is NULL");
    *chain = NULL;
    RETURN_IF_ERROR(
        sized_read(&ours, sizeof ours, options, options_size, "dcp_save_chain_options"));
    return chain_make(&ours, chain);
}

bool dcp_save_chain_in_background(const dcp_save_chain *chain)
{
    return chain && chain->in_background;
}

dcp_status dcp_save_chain_reserve(dcp_save_chain *chain, uint64_t bytes, const dcp_device *device)
{
    if (!chain)
        return dcp_error_set(DCP_ERR_ARGUMENT, "dcp_save_chain_reserve: chain is NULL");
    uint64_t limit = chain->options.staging_limit;
    if (limit != 0 && bytes > limit)
        bytes = limit;
    if (bytes > SIZE_MAX / 2)
        return error_no_memory(SIZE_MAX, "staging");
    RETURN_IF_ERROR(chain_enter(chain));
    bool locks = chain->options.staging != DCP_STAGING_BLOCKING;
    return staging_pool_reserve(&chain->pool, (size_t)bytes, locks ? device : NULL,
                                RESERVING_THREADS);
}

/* Whether the newest save is over. */
static bool is_over(dcp_future *future)
{
    pthread_mutex_lock(&future->mutex);
    bool over = future->state >= DCP_FUTURE_DONE;
    pthread_mutex_unlock(&future->mutex);
    return over;
}

static dcp_status refuse_if_busy(dcp_save_chain *chain)
{
    struct dcp_collective call = {"asking whether a save is under way",
                                  chain->options.timeout_seconds};
    dcp_status status = DCP_OK;
    if (!is_over(chain->last))
        status = dcp_error_set(DCP_ERR_STATE, "the previous save, to %s, has not ended",
                               chain->last->path);
    group_enter(chain->options.group, "dcp_save_async");
    return group_agree(chain->options.group, &call, status);
}

/* If the previous save does not end in time, the next save fails and the previous one goes on. */
dcp_status chain_enter(dcp_save_chain *chain)
{
    dcp_future *last = chain->last;
    if (!last)
        return DCP_OK;
    if (chain->options.when_busy == DCP_BUSY_REFUSE)
        RETURN_IF_ERROR(refuse_if_busy(chain));
    pthread_mutex_lock(&last->mutex);
    bool heard = last->heard;
    pthread_mutex_unlock(&last->mutex);
    future_await_end(last, chain->options.timeout_seconds);
    if (!is_over(last))
        return dcp_error_set(DCP_ERR_TIMEOUT, "the previous save, to %s, did not end within %g s",
                             last->path, chain->options.timeout_seconds);
    dcp_status status = future_await_end(last, -1);
    chain->last = NULL;
    future_release(last);
    return heard || chain->options.log_failures ? DCP_OK : status;
}

void dcp_save_chain_free(dcp_save_chain *chain)
{
    if (!chain)
        return;
    dcp_future *last = chain->last;
    if (last) {
        struct saved_error error;
        error_save(&error);
        future_await_end(last, chain->options.exit_seconds);
        chain->last = NULL;
        future_release(last);
        error_restore(&error);
    }
    chain_release(chain);
}
