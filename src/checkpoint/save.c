/* SPDX-License-Identifier: BSD-3-Clause */
#include "dcp/save.h"

#include <string.h>

#include "base/error.h"
#include "base/io_priority.h"
#include "base/sized.h"
#include "checkpoint/conductor.h"
#include "checkpoint/operation.h"
#include "checkpoint/options.h"
#include "checkpoint/save_coordinator.h"
#include "checkpoint/save_local.h"
#include "plan/save_plan.h"

/* One save, on one rank, from the first step to the last. */
struct save {
    const struct file_ops *ops;
    const char *path;
    dcp_save_options options;
    int rank;
    bool coordinates;
    struct operation operation;
    struct save_local local;
    struct save_session session;
    struct write_orders orders;
    struct write_results results;
    struct save_coordinator coordinator;
    bool assigned; /* session and orders hold what the coordinator decided */
};

static struct dcp_collective call_of(const struct save *save, const char *phase)
{
    struct dcp_collective call = {phase, save->options.timeout_seconds};
    return call;
}

/* All ranks' plans to the coordinator, and everyone's assignment back. */
static dcp_status exchange_plans(struct save *save, dcp_status status)
{
    struct dcp_collective gathering = call_of(save, "gathering save plans");
    struct dcp_collective dealing = call_of(save, "dealing out save plans");
    struct group_messages plans = {0};
    struct buffer message, assignment;

    buffer_init(&message, 0);
    buffer_init(&assignment, 0);
    buffer_append_text(&message, save->path ? save->path : "", save->path ? strlen(save->path) : 0);
    buffer_append_u8(&message, (uint8_t)save->options.compression);
    if (status == DCP_OK)
        status = save_plan_encode(&save->local.plan, &message);
    if (status == DCP_OK)
        status = buffer_status(&message);
    status = group_gather(save->options.group, &gathering, save->options.coordinator, status,
                          message.data, message.size, &plans);
    buffer_free(&message);
    if (save->coordinates && status == DCP_OK)
        status = save_coordinator_plan(save->ops, save->path, &save->options, &plans,
                                       &save->session, &save->coordinator);
    group_messages_free(&plans);
    status = group_scatter(save->options.group, &dealing, save->options.coordinator, status,
                           save->coordinator.assignments, &assignment);
    if (status == DCP_OK) {
        save->assigned = true;
        status = save_assignment_decode(save->ops, &assignment, &save->local.plan, &save->session,
                                        &save->orders);
        save->operation.figures.items = save->orders.count;
        save->operation.figures.bytes_wanted = save_local_bytes(&save->local, &save->orders);
    }
    buffer_free(&assignment);
    return status;
}

/* Carries out this rank's orders. */
static dcp_status write_files(struct save *save)
{
    struct shard_write_figures written;
    dcp_figures *figures = &save->operation.figures;

    const dcp_save_options *options = &save->options;
    bool zstd = options->compression == DCP_COMPRESSION_ZSTD;

    RETURN_IF_ERROR(operation_enter_moving(&save->operation, DCP_PHASE_WRITING,
                                           shard_files_content(&save->orders, zstd), DCP_OK));
    struct rate rate;
    rate_init(&rate, options->write_rate);
    struct shard_write_options how = {
        .thread_count = (uint32_t)options->thread_count,
        .io = options->io,
        .manners = {&rate, options->io_priority, (uint32_t)options->io_threads},
        .zstd = zstd,
        .zstd_level = options->compression_level,
        .zstd_threads = (uint32_t)options->compression_threads,
        .progress = &save->operation.progress,
    };
    int priority = io_priority_enter(options->io_priority);
    dcp_status status = shard_files_write(&save->session, save->rank, &save->orders,
                                          save->local.sources, &how, &save->results, &written);
    io_priority_leave(priority);
    rate_free(&rate);
    figures->syncing_seconds = written.syncing_seconds;
    figures->bytes_moved = written.bytes_written;
    figures->files = written.files;
    figures->direct = written.direct;
    figures->ring = written.ring;
    return status;
}

static dcp_status agree(const struct save *save, const char *phase, dcp_status status)
{
    struct dcp_collective call = call_of(save, phase);
    return group_agree(save->options.group, &call, status);
}

/* After a failure: takes away what this save wrote, unless .metadata was renamed into place. A rank
 * that cannot learn that must leave its files alone. Every rank's files go before the coordinator
 * tries to remove the directory. */
static void clean_up(struct save *save, bool visible)
{
    struct error_story story;

    error_save(&story);
    dcp_status vain = visible ? dcp_error_set(DCP_ERR_STATE, "the checkpoint is visible") : DCP_OK;
    vain = agree(save, "asking whether a failed save is visible", vain);
    if (vain == DCP_OK || (save->coordinates && !visible)) {
        shard_files_discard(&save->session, save->rank, save->orders.file_count);
        agree(save, "cleaning up after a failed save", vain);
        if (save->coordinates)
            save_session_abandon(&save->session);
    }
    error_restore(&story);
}

/* Waits for all ranks to have written. What is compressed lies where only its writer knows: the
 * coordinator is told. */
static dcp_status gather_results(struct save *save, dcp_status status)
{
    struct dcp_collective call = call_of(save, "gathering write results");
    struct group_messages results = {0};
    struct buffer message;

    buffer_init(&message, 0);
    if (status == DCP_OK)
        status = write_results_encode(&save->results, &message);
    status = group_gather(save->options.group, &call, save->options.coordinator, status,
                          message.data, message.size, &results);
    buffer_free(&message);
    if (save->coordinates && status == DCP_OK)
        status = save_coordinator_place(&save->coordinator, &results);
    group_messages_free(&results);
    return status;
}

/* The checkpoint becomes visible only if every rank has written; every rank learns how it ended.
 * From the commit on nothing allocates, so that no rank can fail where another has succeeded. */
static dcp_status finish(struct save *save, dcp_status status)
{
    bool visible = false;

    status = save->options.compression == DCP_COMPRESSION_NONE
                 ? agree(save, "waiting for all ranks to have written", status)
                 : gather_results(save, status);
    if (save->coordinates && status == DCP_OK)
        status =
            save_coordinator_commit(&save->coordinator, &save->session, &save->options, &visible);
    status = agree(save, "waiting for the commit", status);
    if (status != DCP_OK)
        clean_up(save, visible);
    return status;
}

dcp_status checkpoint_save(const struct file_ops *ops, dcp_state *state, const char *path,
                           const dcp_save_options *given)
{
    struct save save = {.ops = ops, .path = path};

    dcp_status started =
        operation_start(&save.operation, given->progress, given->progress_context, 0);
    dcp_status status = options_check_save(given, &save.options);
    status = status == DCP_OK ? started : status;
    save.rank = dcp_group_rank(save.options.group);
    save.coordinates = save.rank == save.options.coordinator;
    metadata_init(&save.coordinator.metadata);

    status = operation_enter(&save.operation, DCP_PHASE_STAGING, status);
    if (status == DCP_OK)
        status = save_local_stage(state, &save.local);
    status = operation_enter(&save.operation, DCP_PHASE_PLANNING, status);
    if (status == DCP_OK)
        status = save_local_plan(&save.local);
    status = exchange_plans(&save, status);
    if (save.assigned || (save.coordinates && status == DCP_OK)) {
        if (status == DCP_OK)
            status = write_files(&save);
        status = operation_enter(&save.operation, DCP_PHASE_COMMIT, status);
        status = finish(&save, status);
    } else if (save.coordinates && save.session.path) {
        save_session_abandon(&save.session);
    }
    write_results_free(&save.results);
    write_orders_free(&save.orders);
    save_session_free(&save.session);
    save_coordinator_free(&save.coordinator);
    save_local_free(&save.local);
    operation_finish(&save.operation, given->figures);
    return status;
}

dcp_status dcp_save_sized(dcp_state *state, const char *path, const dcp_save_options *options,
                          size_t options_size)
{
    dcp_save_options ours;
    RETURN_IF_ERROR(sized_read(&ours, sizeof ours, options, options_size, "dcp_save_options"));
    return checkpoint_save(&file_ops_system, state, path, &ours);
}
