/* SPDX-License-Identifier: BSD-3-Clause */
/* The beginning of an asynchronous save, on the caller's thread. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/path.h"
#include "base/sized.h"
#include "checkpoint/async/async.h"
#include "checkpoint/hooks/hooks.h"
#include "checkpoint/operation/options.h"
#include "checkpoint/save/replica_check.h"
#include "group/group.h"

/* Receives progress from the writing threads, and calls the caller's function. */
static bool listen(void *context, const dcp_progress *progress)
{
    dcp_future *future = context;
    atomic_store(&future->bytes_done, progress->bytes_done);
    atomic_store(&future->bytes_total, progress->bytes_total);
    bool goes_on = !future->progress || future->progress(future->progress_context, progress);
    if (goes_on && atomic_load(&future->cancelled)) {
        atomic_store(&future->saving.operation.progress.cancelled_by, "dcp_future_cancel()");
        return false;
    }
    return goes_on;
}

static dcp_status run_stager(dcp_future *future, const dcp_state *state)
{
    const dcp_stager *stager = future->chain->options.stager;
    if (!state)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the state to save is NULL");
    RETURN_IF_ERROR(dcp_state_status(state));
    future->tree = dcp_state_new();
    if (!future->tree)
        return DCP_ERR_NO_MEMORY;
    future->stager_begun = true;
    error_clear();
    RETURN_IF_ERROR(hook_status(stager->stage(stager->context, state, future->tree), "stage"));
    RETURN_IF_ERROR(dcp_state_status(future->tree));
    return stager->synchronize_at_once ? future_synchronize(future) : DCP_OK;
}

/* Keeps the id in a form that means the same later. Whether a storage takes it is found when it is
 * used. */
static dcp_status keep_id(const dcp_future *future, const char *path, char **id)
{
    const dcp_storage *storage;
    if (!*path || storage_choose(&future->saving.storage, path, &storage) != DCP_OK) {
        error_clear();
        return DCP_OK;
    }
    return storage_keep_id(storage, path, id);
}

/* The path in the fallback directory: the last name of the path, there. */
static dcp_status make_fallback(dcp_future *future)
{
    const char *directory = future->chain->options.fallback_path;
    const char *path = future->saving.session.path;
    if (!directory || !path)
        return DCP_OK;
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    size_t begin = length;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    char *name = memory_allocate(length - begin + 1);
    if (!name)
        return error_no_memory(length - begin + 1, "a path");
    memcpy(name, path + begin, length - begin);
    name[length - begin] = '\0';
    future->fallback = path_join(directory, name);
    memory_release(name);
    if (!future->fallback)
        return error_no_memory(strlen(directory) + length, "a path");
    return keep_id(future, future->fallback, &future->fallback_id);
}

static void give_back_pool(void *context)
{
    staging_pool_free(context);
}

/* The save uses the chain's pool until it ends. While planning, the pool is kept if the limit
 * allows. */
static void describe_staging(dcp_future *future)
{
    dcp_save_chain *chain = future->chain;
    struct dcp_saving *saving = &future->saving;
    chain_describe_staging(chain, saving);
    saving->staging.pool = &chain->pool;
    if (saving->options.memory_limit != 0 && chain->options.stager)
        staging_pool_free(&chain->pool);
    staging_pool_enter(&chain->pool, saving->operation.account);
    if (saving->staging.wanted)
        memory_account_set_spare(saving->operation.account, give_back_pool, &chain->pool);
}

static dcp_status copy_state(dcp_future *future, const dcp_state *state, const dcp_state *info)
{
    RETURN_IF_ERROR(info ? saving_copy_state(info, &future->info) : DCP_OK);
    return saving_copy_state(state, &future->tree);
}

/* If the limit is too small even for this, it is lifted, so that planning can find a sufficient
 * limit for the message. */
static dcp_status copy_within_limit(dcp_future *future, const dcp_state *state,
                                    const dcp_state *info)
{
    struct memory_account *account = future->saving.operation.account;
    struct saved_error error;
    dcp_status status = copy_state(future, state, info);
    if (status != DCP_ERR_NO_MEMORY || memory_account_limit_reached() == 0)
        return status;
    error_save(&error);
    dcp_state_free(future->info);
    future->info = NULL;
    memory_account_set_limit(account, 0);
    status = copy_state(future, state, info);
    memory_account_set_limit(account, future->saving.options.memory_limit);
    return status == DCP_OK ? error_restore(&error) : status;
}

/* Takes ownership of what is saved: the stager's result, or a copy of the tree, of the caller's or
 * of the planner's. */
static dcp_status take_state(dcp_future *future, dcp_state *state, const dcp_state *info,
                             dcp_status status)
{
    struct dcp_saving *saving = &future->saving;
    bool staged = future->chain->options.stager != NULL;
    bool later = saving->steps.needs_state && !staged;
    if (status == DCP_OK && !staged && !later)
        status = copy_within_limit(future, state, info);
    else if (status == DCP_OK && info)
        status = saving_copy_state(info, &future->info);
    saving->options.info = future->info;
    if (later)
        saving->copied = &future->tree;
    if (status == DCP_OK && staged)
        status = run_stager(future, state);
    status = saving_take(saving, later ? state : future->tree, status);
    return status == DCP_OK && later ? future_stage_tree(future) : status;
}

/* Before the caller may change its tensors, as replicas are copied only in parts. */
static dcp_status check_replicas(dcp_future *future, dcp_status status)
{
    struct dcp_saving *saving = &future->saving;
    if (!saving->assigned || !replica_check_is_wanted(saving))
        return status;
    if (status == DCP_OK && future->stager_begun)
        status = future_synchronize(future);
    return replica_check_run(saving, status);
}

/* Everything up to the orders. */
static dcp_status plan(dcp_future *future, dcp_state *state, const dcp_save_options *given)
{
    struct dcp_saving *saving = &future->saving;
    saving->path = future->path;
    saving->may_fall_back = future->chain->options.fallback_path != NULL;
    dcp_status status = saving_begin(saving, given);
    describe_staging(future);
    if (status == DCP_OK)
        status = save_extra_files_keep(&saving->extra_files);
    if (status == DCP_OK)
        status = keep_id(future, future->path, &future->id);
    saving->id = future->id;
    status = take_state(future, state, given->info, status);
    /* Keeps what the state was made of, in case the plan must be made again. */
    status = saving_plan(saving, saving->copied ? state : future->tree, status);
    status = check_replicas(future, status);
    memory_account_set_spare(saving->operation.account, NULL, NULL);
    return status;
}

/* Without a place to write to, the save begins all the same if it may try again: it plans what to
 * copy, and the thread handles the failure. */
static dcp_status begin_nowhere(dcp_future *future, dcp_status status)
{
    struct dcp_saving *saving = &future->saving;
    error_save(&future->error);
    future->error.status = status;
    if (saving->assigned)
        saving_finish(saving, status);
    future->nowhere = true;
    status = saving_plan_nowhere(saving);
    /* Hooks have no plan yet. */
    return saving->steps.needs_state ? status : check_replicas(future, status);
}

/* Whether all ranks have a place to write to. A single rank may fail to open what the coordinator
 * has made. */
static dcp_status find_place(dcp_future *future, dcp_status status)
{
    struct dcp_saving *saving = &future->saving;
    if (!chain_may_try_again(&future->chain->options) || !saving->together)
        return status;
    if (saving->assigned)
        status = saving_agree(saving, "beginning a save", status);
    return saving_failed_place(status) ? begin_nowhere(future, status) : status;
}

/* Begins to copy the tensors of the orders; on all ranks or on none. */
static dcp_status stage(dcp_future *future, dcp_status status)
{
    struct dcp_saving *saving = &future->saving;
    operation_enter(&saving->operation, DCP_PHASE_STAGING, DCP_OK);
    if (status == DCP_OK)
        status = make_fallback(future);
    if (status == DCP_OK && saving->staging.wanted)
        status = future_stage(future);
    status = saving_agree(saving, "beginning to stage", status);
    if (status != DCP_OK)
        saving_finish(saving, status);
    return status;
}

/* From here on, the save has a future on all ranks. A private chain has no other. */
static dcp_status launch(dcp_future *future, bool private,
                         const struct memory_account *account_before)
{
    dcp_save_chain *chain = future->chain;
    struct dcp_saving *saving = &future->saving;
    future->in_background = chain->in_background || !saving->options.group;
    if (future->in_background)
        saving->options.group = saving->options.group ? chain->background : NULL;
    saving->operation.account_before = NULL;
    if (!private) {
        atomic_fetch_add(&future->references, 1);
        chain->last = future;
    }
    exit_add(future);
    saving->staging.threaded = false; /* for further attempts, which that thread makes */
    future_start(future);
    memory_account_enter((struct memory_account *)(uintptr_t)account_before);
    if (chain->options.staging == DCP_STAGING_OVERLAPPED || chain->options.stager)
        return DCP_OK;
    /* A failure is the save's; the future reports it. */
    dcp_future_wait_staged(future, -1);
    error_clear();
    return DCP_OK;
}

/* If one rank cannot begin, none does: ranks may differ in whether they have learned of a
 * failure. */
static dcp_status begin(dcp_save_chain *chain, const char *path, const dcp_save_options *given,
                        dcp_future **future)
{
    struct dcp_collective call = {"beginning an asynchronous save", chain->options.timeout_seconds};
    if (given->without_collectives && chain->options.group)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "a save without_collectives needs a chain without a group");
    dcp_status status = chain_enter(chain);
    if (status == DCP_OK && given->group && given->group != chain->options.group)
        status = dcp_error_set(DCP_ERR_ARGUMENT, "the save has another group than its chain");
    if (status == DCP_OK)
        status = future_new(chain, path, future);
    if (given->no_dist)
        return status;
    group_enter(chain->options.group, "dcp_save_async");
    return group_agree(chain->options.group, &call, status);
}

static dcp_status save_async(dcp_state *state, const char *path, const dcp_save_options *given,
                             dcp_future **future)
{
    dcp_save_options options = *given;
    dcp_save_chain *chain = given->chain;
    struct memory_account *before = memory_account_current();
    dcp_future *made = NULL;

    options_leave_group(&options);
    if (options.no_dist)
        options.group = NULL;
    if (chain)
        atomic_fetch_add(&chain->references, 1);
    else
        RETURN_IF_ERROR(chain_make(&(dcp_save_chain_options){.group = options.group}, &chain));
    dcp_status status = begin(chain, path, &options, &made);
    bool begun = status == DCP_OK && made;
    if (begun) {
        made->progress = given->progress;
        made->progress_context = given->progress_context;
        options.group = chain->options.group;
        options.progress = listen;
        options.progress_context = made;
        options.figures = NULL;
        status = find_place(made, plan(made, state, &options));
        if (made->saving.assigned)
            status = stage(made, status);
    }
    if (begun && status == DCP_OK) {
        status = launch(made, !given->chain, before);
        *future = made;
    } else if (made) {
        if (begun) {
            staging_end(made->staged.staging);
            staging_pool_leave(&chain->pool);
            saving_free(&made->saving);
            operation_finish(&made->saving.operation, NULL);
            memory_account_enter(before);
        }
        future_release(made);
    }
    chain_release(chain);
    return status;
}

dcp_status dcp_save_async_sized(dcp_state *state, const char *path, const dcp_save_options *options,
                                size_t options_size, dcp_future **future)
{
    dcp_save_options ours;
    if (!future)
        return dcp_error_set(DCP_ERR_ARGUMENT, "dcp_save_async: future is NULL");
    *future = NULL;
    RETURN_IF_ERROR(sized_read(&ours, sizeof ours, options, options_size, "dcp_save_options"));
    if (ours.metadata)
        *ours.metadata = NULL;
    return save_async(state, path, &ours, future);
}
