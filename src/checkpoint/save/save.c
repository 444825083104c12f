/* SPDX-License-Identifier: BSD-3-Clause */
#include "dcp/save.h"

#include <string.h>

#include "base/error.h"
#include "base/io_priority.h"
#include "base/memory_available.h"
#include "base/sized.h"
#include "checkpoint/hooks/save_hooks.h"
#include "checkpoint/operation/options.h"
#include "checkpoint/save/replica_check.h"
#include "checkpoint/save/save_beside.h"
#include "checkpoint/save/save_committed.h"
#include "checkpoint/save/save_limit.h"
#include "checkpoint/save/save_missing.h"
#include "checkpoint/save/save_page_cache.h"
#include "checkpoint/save/saving.h"
#include "group/group.h"
#include "state/node.h"

static struct dcp_collective call_of(const struct dcp_saving *saving, const char *phase)
{
    struct dcp_collective call = {phase, saving->options.timeout_seconds};
    return call;
}

dcp_status saving_agree(const struct dcp_saving *saving, const char *phase, dcp_status status)
{
    struct dcp_collective call = call_of(saving, phase);
    return group_agree(saving->options.group, &call, status);
}

/* ---- the state, and the plan of this rank ---- */

dcp_status saving_plan_global(struct dcp_saving *saving, dcp_status status)
{
    dcp_figures *figures = &saving->operation.figures;
    status = save_planning_begin(saving, status);
    saving->together = status == DCP_OK;
    if (status == DCP_OK)
        status = save_planning_run(saving);
    if (saving->assigned && saving->planning.extra_files)
        status = save_extra_files_gather(saving, status);
    figures->items = saving->orders.count;
    figures->bytes_wanted = save_local_bytes(&saving->local, &saving->orders);
    figures->plan_reused = saving->planning.reused;
    return status;
}

static struct shard_write_options writing_options(struct dcp_saving *saving)
{
    const dcp_save_options *options = &saving->options;
    return (struct shard_write_options){
        .thread_count = (uint32_t)options->thread_count,
        .io = options->io,
        .manners = {NULL, options->io_priority, (uint32_t)options->io_threads},
        .zstd = options->compression == DCP_COMPRESSION_ZSTD,
        .zstd_level = options->compression_level,
        .zstd_threads = (uint32_t)options->compression_threads,
        .buffer_bytes = SHARD_FILES_BUFFERS / (size_t)options->thread_count,
        .record_threads = shard_files_record_threads((uint32_t)options->thread_count,
                                                     (uint32_t)options->io_threads),
        .lanes = UINT32_MAX,
        .progress = &saving->operation.progress,
    };
}

dcp_status saving_write_files(struct dcp_saving *saving, struct write_results *results)
{
    struct shard_write_figures written;
    dcp_figures *figures = &saving->operation.figures;
    struct rate rate;
    struct shard_write_options how = saving->how;
    bool zstd = saving->options.compression == DCP_COMPRESSION_ZSTD;
    if (!save_session_is_open(&saving->session))
        return dcp_error_set(DCP_ERR_GROUP,
                             "the coordinator's message says that %s has no directory to write to",
                             saving->session.path);
    how.page_cache = save_page_cache_decide(
        &saving->options, shard_files_content(&saving->orders, zstd), memory_available(""));
    rate_init(&rate, saving->options.write_rate);
    how.manners.write_rate = &rate;
    how.staging = saving->staged ? saving->staged->staging : NULL;
    int priority = io_priority_enter(saving->options.io_priority);
    dcp_status status = shard_files_write(
        &saving->session, saving->file_rank, &saving->orders,
        saving->staged ? saving->staged->sources : saving->local.sources, &how, results, &written);
    io_priority_leave(priority);
    rate_free(&rate);
    figures->syncing_seconds = written.syncing_seconds;
    figures->bytes_moved = written.bytes_written;
    figures->files = written.files;
    figures->direct = written.direct;
    figures->ring = written.ring;
    return status;
}

static dcp_status prepare_commit(struct dcp_saving *saving)
{
    RETURN_IF_ERROR(save_planning_describe(saving));
    return save_coordinator_prepare(&saving->coordinator, &saving->session, &saving->options);
}

/* While the other ranks write already, so that nobody waits for it in the end. */
static dcp_status begin_preparing(struct dcp_saving *saving, struct save_beside *preparing)
{
    if (!saving->coordinates || saving->gathers_results)
        return DCP_OK;
    if (save_prepares_beside(saving))
        save_beside_start(preparing, saving, prepare_commit);
    return preparing->runs ? DCP_OK : prepare_commit(saving);
}

dcp_status saving_write(struct dcp_saving *saving)
{
    struct save_beside preparing = {0};
    bool zstd = saving->options.compression == DCP_COMPRESSION_ZSTD;
    uint64_t content =
        saving->ranks ? saving->coordinator.content : shard_files_content(&saving->orders, zstd);
    RETURN_IF_ERROR(operation_enter_moving(&saving->operation, DCP_PHASE_WRITING, content, DCP_OK));
    if (saving->coordinates && saving->options.allow_partial)
        save_missing_report(saving);
    dcp_status status = begin_preparing(saving, &preparing);
    if (status == DCP_OK)
        status = save_extra_files_write(saving);
    if (status == DCP_OK && !saving->staged)
        status = flatten_await_devices(&saving->local.flat, saving->options.timeout_seconds);
    if (status == DCP_OK)
        status = saving->steps.write(saving);
    return save_beside_end(&preparing, status);
}

/* ---- the commit ---- */

/* After a failure: removes what this save wrote, unless .metadata was renamed into place. A rank
 * that cannot find that out must leave its files alone. Every rank removes its files before the
 * coordinator tries to remove the directory. */
static void clean_up(struct dcp_saving *saving)
{
    struct saved_error error;

    error_save(&error);
    save_commit_drop(&saving->coordinator.commit);
    dcp_status vain =
        saving->visible ? dcp_error_set(DCP_ERR_STATE, "the checkpoint is visible") : DCP_OK;
    vain = saving_agree(saving, "asking whether a failed save is visible", vain);
    if (vain == DCP_OK || (saving->coordinates && !saving->visible)) {
        saving->steps.abandon(saving);
        save_extra_files_discard(saving);
        shard_files_discard(&saving->session, saving->file_rank, saving->orders.file_count);
        saving_agree(saving, "cleaning up after a failed save", vain);
        if (saving->coordinates)
            save_session_abandon(&saving->session);
    }
    error_restore(&error);
}

/* Waits for all ranks to write. If only the writers know the places of items, as with compression
 * or storage writers, they report them to the coordinator. */
static dcp_status gather_results(struct dcp_saving *saving, dcp_status status)
{
    struct dcp_collective call = call_of(saving, "gathering write results");
    struct group_messages results = {0};
    struct buffer message;

    buffer_init(&message, 0);
    if (status == DCP_OK)
        status = write_results_encode(&saving->results, &message);
    status = group_gather(saving->options.group, &call, saving->options.coordinator, status,
                          message.data, message.size, &results);
    buffer_free(&message);
    if (saving->coordinates && status == DCP_OK)
        status =
            save_planning_forget(&saving->planning, saving->steps.take_results(saving, &results));
    group_messages_free(&results);
    return status;
}

/* After a commit without a failure here: whether ranks could not learn the result from each other.
 * The coordinator knows that it has succeeded; others may have learned that it failed. */
static bool is_unheard(const struct dcp_saving *saving, dcp_status status)
{
    return status != DCP_OK &&
           (saving->visible || status == DCP_ERR_TIMEOUT || status == DCP_ERR_GROUP);
}

static dcp_status set_unconfirmed(const struct dcp_saving *saving)
{
    const char *path = saving->session.path ? saving->session.path : "";
    struct saved_error error;
    error_save(&error);
    if (saving->coordinates)
        return dcp_error_set(
            DCP_ERR_UNCONFIRMED,
            "%s: the checkpoint is committed, but not all ranks have confirmed it: %s", path,
            error.text);
    return dcp_error_set(DCP_ERR_UNCONFIRMED,
                         "%s: the checkpoint may be committed, but rank %d could not find out: %s",
                         path, saving->rank, error.text);
}

/* The checkpoint becomes visible only if every rank has written, and every rank learns the result.
 * After the commit nothing allocates, so that no rank can fail where another has succeeded. */
dcp_status saving_finish(struct dcp_saving *saving, dcp_status status)
{
    status = operation_enter(&saving->operation, DCP_PHASE_COMMIT, status);
    status = saving->gathers_results
                 ? gather_results(saving, status)
                 : saving_agree(saving, "waiting for all ranks to write", status);
    if (status == DCP_OK)
        status = save_committed_prepare(saving);
    if (saving->coordinates && status == DCP_OK)
        status = saving->steps.commit(saving);
    bool fine = status == DCP_OK;
    status = saving_agree(saving, "waiting for the commit", status);
    saving->in_place = status == DCP_ERR_UNCONFIRMED;
    if (fine && is_unheard(saving, status))
        status = set_unconfirmed(saving);
    if (status != DCP_OK)
        clean_up(saving);
    else
        save_committed_notify(saving);
    return status;
}

/* If the group failed, a prepared commit may not have happened. */
static void end_plan(struct dcp_saving *saving)
{
    save_committed_drop(saving);
    save_commit_drop(&saving->coordinator.commit);
    save_planning_end(saving);
    plan_extras_free(&saving->extras);
    write_results_free(&saving->results);
    write_orders_free(&saving->orders);
    save_session_free(&saving->session);
    save_coordinator_free(&saving->coordinator);
}

/* What an attempt begins with. */
static void begin_plan(struct dcp_saving *saving)
{
    const struct dcp_saving fresh = {0};
    saving->session = fresh.session;
    saving->orders = fresh.orders;
    saving->results = fresh.results;
    saving->coordinator = fresh.coordinator;
    saving->planning = fresh.planning;
    saving->assigned = saving->visible = saving->in_place = false;
    saving->extra_files.written = 0;
    metadata_init(&saving->coordinator.metadata);
}

void saving_free(struct dcp_saving *saving)
{
    end_plan(saving);
    save_local_free(&saving->local);
    saving->steps.free(saving);
}

/* A dry run copies the tree again, but not the tensors. */
static void drop_copies(struct dcp_saving *saving)
{
    if (saving->copied) {
        dcp_state_free(*saving->copied);
        *saving->copied = NULL;
    }
    if (saving->staging.begun) {
        staging_end(*saving->staging.begun);
        *saving->staging.begun = NULL;
        saving->staging.begun = NULL;
    }
}

dcp_status saving_start_over_dry(struct dcp_saving *saving)
{
    memory_account_set_limit(saving->operation.account, 0);
    saving_free(saving);
    begin_plan(saving);
    saving->local = (struct save_local){0};
    drop_copies(saving);
    saving->replicas_checked = false;
    saving->steps = save_steps_default;
    dcp_status status = save_hooks_choose(saving);
    save_steps_make_dry(&saving->steps);
    return status;
}

dcp_status saving_begin(struct dcp_saving *saving, const dcp_save_options *given)
{
    dcp_status started = operation_start(&saving->operation, given->progress,
                                         given->progress_context, given->memory_limit);
    dcp_status status = options_check_save(given, &saving->options);
    status = status == DCP_OK ? started : status;
    if (status == DCP_OK)
        status = storage_take(&saving->storage, given->storage);
    if (status == DCP_OK)
        status = save_extra_files_take(&saving->extra_files, given);
    begin_plan(saving);
    saving->steps = save_steps_default;
    saving->as_planned = saving->options.compression == DCP_COMPRESSION_NONE;
    saving->gathers_results = !saving->as_planned;
    /* Without the table of steps, nobody could find a limit that is large enough. */
    memory_account_set_limit(saving->operation.account, 0);
    if (status == DCP_OK)
        status = save_hooks_choose(saving);
    memory_account_set_limit(saving->operation.account, given->memory_limit);
    saving->rank = dcp_group_rank(saving->options.group);
    saving->file_rank = saving->options.without_collectives ? saving->options.rank : saving->rank;
    saving->coordinates = saving->rank == saving->options.coordinator;
    if (status == DCP_OK)
        saving->how = writing_options(saving);
    return status;
}

dcp_status saving_copy_state(const dcp_state *state, dcp_state **copy)
{
    *copy = NULL;
    if (!state)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the state to save is NULL");
    return state_copy_root(state, copy);
}

dcp_status saving_take(struct dcp_saving *saving, dcp_state *state, dcp_status status)
{
    status = operation_enter(&saving->operation, DCP_PHASE_STAGING, status);
    return status == DCP_OK ? saving->steps.set_up(saving, state) : status;
}

/* After a failure that all ranks share, nothing is begun. */
static dcp_status end_planning(struct dcp_saving *saving, dcp_status status)
{
    bool limited = saving->assigned && saving->options.memory_limit != 0;
    if (limited)
        status = save_limit_keep(saving, status);
    if (saving->assigned && (status == DCP_OK || !limited))
        return status;
    saving->assigned = false;
    if (saving->coordinates && saving->session.path)
        save_session_abandon(&saving->session);
    saving->steps.abandon(saving);
    return status;
}

dcp_status saving_plan(struct dcp_saving *saving, dcp_state *state, dcp_status status)
{
    status = operation_enter(&saving->operation, DCP_PHASE_PLANNING, status);
    if (status == DCP_OK)
        status = saving->steps.plan_local(saving);
    status = end_planning(saving, saving_plan_global(saving, status));
    bool explains = status == DCP_ERR_NO_MEMORY && !saving->assigned;
    return explains ? save_limit_explain(saving, state) : status;
}

static dcp_status plan_anew(struct dcp_saving *saving)
{
    end_plan(saving);
    begin_plan(saving);
    dcp_status status = operation_enter(&saving->operation, DCP_PHASE_PLANNING, DCP_OK);
    if (status == DCP_OK)
        status = saving->steps.set_up_again(saving);
    return end_planning(saving, saving_plan_global(saving, status));
}

dcp_status saving_plan_again(struct dcp_saving *saving, const char *path, const char *id)
{
    saving->was_visible = saving->path == path && (saving->was_visible || saving->visible);
    saving->path = path;
    saving->id = id;
    return plan_anew(saving);
}

dcp_status saving_plan_nowhere(struct dcp_saving *saving)
{
    struct save_steps steps = saving->steps;
    dcp_save_plan_cache *cache = saving->options.plan_cache;
    end_plan(saving);
    begin_plan(saving);
    /* The state has been copied as a whole: hooks plan when there is a place. */
    if (steps.needs_state)
        return save_planning_stay(saving);
    saving->steps.begin = save_coordinator_stay;
    saving->options.plan_cache = NULL;
    dcp_status status = operation_enter(&saving->operation, DCP_PHASE_PLANNING, DCP_OK);
    status = end_planning(saving, saving_plan_global(saving, status));
    saving->steps = steps;
    saving->options.plan_cache = cache;
    return status;
}

bool saving_failed_place(dcp_status status)
{
    return status == DCP_ERR_IO || status == DCP_ERR_NO_SPACE || status == DCP_ERR_NOT_FOUND ||
           status == DCP_ERR_FILE_LIMIT;
}

dcp_status dcp_save_sized(dcp_state *state, const char *path, const dcp_save_options *options,
                          size_t options_size)
{
    struct dcp_saving saving = {.path = path};
    dcp_save_options given;
    RETURN_IF_ERROR(sized_read(&given, sizeof given, options, options_size, "dcp_save_options"));

    if (given.metadata)
        *given.metadata = NULL;
    dcp_status status = saving_begin(&saving, &given);
    group_enter(saving.options.group, "dcp_save");
    status = saving_take(&saving, state, status);
    status = saving_plan(&saving, state, status);
    if (saving.assigned) {
        status = replica_check_run(&saving, status);
        if (status == DCP_OK)
            status = saving_write(&saving);
        status = saving_finish(&saving, status);
    }
    saving_free(&saving);
    save_extra_files_free(&saving.extra_files);
    operation_finish(&saving.operation, given.figures);
    return status;
}
