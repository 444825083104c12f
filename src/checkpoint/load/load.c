/* SPDX-License-Identifier: BSD-3-Clause */
#include "dcp/load.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/io_priority.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/sized.h"
#include "checkpoint/hooks/loading.h"
#include "checkpoint/load/load_fill.h"
#include "checkpoint/load/load_limit.h"
#include "checkpoint/load/load_planning.h"
#include "checkpoint/load/load_report.h"
#include "checkpoint/operation/operation.h"
#include "checkpoint/operation/options.h"
#include "checkpoint/share/load_sharing.h"
#include "group/group.h"
#include "plan/load/load_plan.h"

/* One load, on one rank, from the first step to the last. */
struct load {
    const char *path;
    dcp_load_options options;
    bool coordinates;
    struct operation operation;
    struct load_planning planning;
    struct loaded_objects objects;
    struct dcp_loading loading; /* where there are hooks */
    struct load_limit limit;
    bool imagined; /* no destination is to be changed */
    bool begun;    /* destinations may have been changed */
};

static struct dcp_collective call_of(const struct load *load, const char *phase)
{
    struct dcp_collective call = {phase, load->options.timeout_seconds};
    return call;
}

static dcp_status agree(const struct load *load, const char *phase, dcp_status status)
{
    struct dcp_collective call = call_of(load, phase);
    return group_agree(load->options.group, &call, status);
}

/* What ranks read for each other, then what each reads for itself. */
static dcp_status fill_tensors(struct load *load, const struct load_sharing *sharing)
{
    const struct load_planning *planning = &load->planning;
    bool shared = planning->share.run_count != 0;
    dcp_figures *figures = &load->operation.figures;
    int32_t threads = load->options.thread_count;
    uint64_t moved = 0;
    if (load->options.memory_limit != 0)
        threads = (int32_t)load->limit.how.thread_count;
    RETURN_IF_ERROR(
        load_share_tensors(sharing, &planning->share, &moved, &figures->bytes_exchanged));
    dcp_status status = load_read_tensors(
        sharing->flat, sharing->metadata, shared ? &planning->rest : sharing->plan, sharing->reader,
        load->options.verification, threads, &figures->bytes_moved);
    figures->bytes_moved += moved;
    return agree(load, "reading tensors", status);
}

/* Ranks read for each other only if there is memory for it on all of them. */
static dcp_status share_within_limit(struct load *load, const struct load_sharing *sharing)
{
    struct load_share *share = &load->planning.share;
    struct load_plan *rest = &load->planning.rest;
    dcp_status status = load_share_agree(sharing, DCP_OK, NULL, share, rest);
    if (status == DCP_OK && share->run_count != 0)
        status = load_limit_fit_sharing(&load->limit, &load->operation, sharing, share);
    status = agree(load, "reading for each other within the memory limit", status);
    if (status != DCP_ERR_NO_MEMORY)
        return status;
    load_share_free(share);
    load_plan_free(rest);
    load_limit_fit(&load->limit, &load->operation, sharing);
    return DCP_OK;
}

/* Objects, each once; before that, who reads what, unless that holds from the load before. */
static dcp_status read_objects(struct load *load, const struct load_sharing *sharing,
                               dcp_status status)
{
    struct load_planning *planning = &load->planning;
    struct load_share *share = &planning->share_of_objects;
    uint32_t rank = (uint32_t)dcp_group_rank(load->options.group);
    if (status == DCP_OK)
        status = loaded_objects_init(&load->objects, sharing->metadata, sharing->plan);
    if (load->options.memory_limit == 0 && !planning->dealt)
        RETURN_IF_ERROR(
            load_share_agree(sharing, status, share, &planning->share, &planning->rest));
    if (status == DCP_OK && load->options.memory_limit != 0)
        status = load_limit_look(&load->limit, sharing);
    status = load_share_objects(sharing, share, status, &load->objects,
                                &load->operation.figures.bytes_exchanged);
    if (status == DCP_OK)
        status = load_read_objects(sharing->flat, sharing->metadata, sharing->plan, share, rank,
                                   sharing->reader, load->options.verification, &load->objects);
    return status;
}

/* Who reads what of tensors, and how, within the limit, if there is one. */
static dcp_status arrange_reading(struct load *load, const struct load_sharing *sharing,
                                  dcp_status status)
{
    if (load->options.memory_limit == 0)
        return status;
    if (status == DCP_OK)
        load_limit_find(&load->limit, &load->operation, sharing);
    if (status == DCP_OK && !load->imagined)
        status = load_limit_check(&load->limit, &load->options);
    RETURN_IF_ERROR(agree(load, "keeping within the memory limit", status));
    if (load->imagined)
        return DCP_OK;
    load_limit_fit(&load->limit, &load->operation, sharing);
    return share_within_limit(load, sharing);
}

/* Everything that can fail without a destination having been touched comes first, and is agreed on.
 */
static dcp_status read_all(struct load *load, dcp_status status)
{
    const struct load_sharing sharing = {
        .options = &load->options,
        .metadata = &load->planning.stored.metadata,
        .flat = &load->planning.flat,
        .plan = &load->planning.plan,
        .reader = load->planning.stored.reader,
        .progress = &load->operation.progress,
    };
    if (!load->imagined)
        status = operation_enter_moving(&load->operation, DCP_PHASE_READING,
                                        sharing.plan->bytes_wanted, status);
    int priority = io_priority_enter(load->options.io_priority);
    status = read_objects(load, &sharing, status);
    io_priority_leave(priority);
    if (status == DCP_OK)
        status = load_allocate(sharing.flat, sharing.plan);
    if (status == DCP_OK && !load->imagined)
        status = flatten_await_devices(sharing.flat, load->options.timeout_seconds);
    status = arrange_reading(load, &sharing, status);
    RETURN_IF_ERROR(agree(load, "reading objects", status));
    load->planning.dealt = true;
    if (load->imagined)
        return DCP_OK;

    load->begun = true;
    priority = io_priority_enter(load->options.io_priority);
    status = fill_tensors(load, &sharing);
    io_priority_leave(priority);
    return status == DCP_OK ? DCP_OK : error_prefix(status, "tensors may be partly filled");
}

/* The same by hooks; the plan is final, and the same has been agreed on, before anything is read.
 */
static dcp_status read_by_hooks(struct load *load, dcp_status status)
{
    status = loading_plan_global(&load->loading, status);
    status = operation_enter_moving(&load->operation, DCP_PHASE_READING,
                                    load->loading.targets.bytes, status);
    RETURN_IF_ERROR(agree(load, "beginning to read", status));

    load->begun = true;
    int priority = io_priority_enter(load->options.io_priority);
    status = loading_read(&load->loading);
    io_priority_leave(priority);
    load->operation.figures.bytes_moved = load->loading.bytes_moved;
    status = agree(load, "reading with hooks", status);
    return status == DCP_OK ? DCP_OK : error_prefix(status, "tensors may be partly filled");
}

static dcp_status fill(struct load *load, dcp_status status)
{
    RETURN_IF_ERROR(loading_has_hooks(&load->loading) ? read_by_hooks(load, status)
                                                      : read_all(load, status));
    if (load->imagined)
        return DCP_OK;
    status = operation_enter(&load->operation, DCP_PHASE_COMMIT, DCP_OK);
    if (status == DCP_OK)
        status = load_place_objects(&load->objects);
    if (status == DCP_OK)
        status = flatten_notify(&load->planning.flat);
    status = agree(load, "finishing the load", status);
    if (status != DCP_OK)
        return error_prefix(status, "tensors are filled, objects may not be");
    return DCP_OK;
}

/* What the loading works on. */
static struct loading_parts parts_of(struct load *load)
{
    return (struct loading_parts){
        .options = &load->options,
        .coordinates = load->coordinates,
        .names = &load->planning.names,
        .metadata = &load->planning.stored.metadata,
        .flat = &load->planning.flat,
        .made = &load->planning.plan,
        .differences = &load->planning.mine,
        .objects = &load->objects,
        .progress = &load->operation.progress,
    };
}

/* A rank that has failed to find the verdict goes on with its own failure, and hears the others' in
 * the next exchange. The verdict is told as every rank finds it, without a rank's name. */
static dcp_status pass_verdict(struct load *load, dcp_status verdict)
{
    struct error_story story;
    error_save(&story);
    dcp_status heard = fill(load, verdict);
    return heard == verdict ? error_restore(&story) : heard;
}

static dcp_status run(struct load *load, dcp_state *state, dcp_status status,
                      dcp_load_report **report)
{
    const struct load_origin origin = {load->path, &load->options, load->coordinates,
                                       &load->operation.progress};

    struct load_planning *planning = &load->planning;
    dcp_status decoded;
    RETURN_IF_ERROR(load_planning_run(planning, &origin, &load->loading, state, status, &decoded));
    if (decoded != DCP_OK)
        return fill(load, decoded);

    dcp_status reported = report ? load_report_new(&planning->all, report) : DCP_OK;
    status = load_differences_judge(&planning->all, load->options.strictness,
                                    &planning->stored.metadata);
    if (status != DCP_OK && status != DCP_ERR_NO_MEMORY)
        return pass_verdict(load, status);
    if (load->coordinates && !load->imagined)
        load_differences_log(&planning->all, load->options.strictness, &planning->stored.metadata,
                             load->path ? load->path : "");
    return fill(load, status != DCP_OK ? status : reported);
}

/* Says what was not checked that was to be, and why. */
static void log_unchecked(const struct load *load, const struct shard_read_figures *read)
{
    char bare[96] = "", partial[96] = "";
    uint64_t parts = read->bytes_unchecked - read->bytes_bare;
    if (read->bytes_unchecked == 0 || load->options.verification == DCP_VERIFY_NONE)
        return;
    if (read->bytes_bare > 0)
        snprintf(bare, sizeof bare, ", %" PRIu64 " for want of checksums in their files",
                 read->bytes_bare);
    if (parts > 0)
        snprintf(partial, sizeof partial,
                 ", %" PRIu64 " as parts of records with one checksum each", parts);
    log_line(DCP_LOG_INFO,
             "%s: %" PRIu64 " of %" PRIu64 " bytes that were read were not checked%s%s",
             load->path ? load->path : "", read->bytes_unchecked,
             read->bytes_checked + read->bytes_unchecked, bare, partial);
}

static void note_figures(struct load *load, dcp_load_report *report)
{
    struct shard_read_figures read;
    dcp_figures *figures = &load->operation.figures;
    const struct load_planning *planning = &load->planning;

    bool hooked = loading_has_hooks(&load->loading);
    figures->items = hooked ? load->loading.targets.count : planning->plan.count;
    figures->bytes_wanted = hooked ? load->loading.targets.bytes : planning->plan.bytes_wanted;
    figures->plan_reused = planning->reused;
    if (!planning->stored.reader)
        return;
    shard_reader_figures(planning->stored.reader, &read);
    figures->bytes_read = read.bytes_read;
    figures->bytes_checked = read.bytes_checked;
    figures->bytes_unchecked = read.bytes_unchecked;
    load_report_note(report, read.bytes_checked, read.bytes_unchecked);
    log_unchecked(load, &read);
    figures->files = read.files_opened;
    figures->direct = read.direct;
    figures->ring = read.ring;
}

/* What a load is made of before it begins, when the options have been checked. */
static dcp_status set_up(struct load *load, dcp_status status)
{
    load_planning_init(&load->planning, &load->options, load->imagined);
    if (status == DCP_OK)
        status =
            load_names_init(&load->planning.names,
                            &(struct name_filter){.include = load->options.include,
                                                  .include_count = load->options.include_count,
                                                  .exclude = load->options.exclude,
                                                  .exclude_count = load->options.exclude_count},
                            load->options.renames, load->options.rename_count);
    struct loading_parts parts = parts_of(load);
    dcp_status hooked = loading_init(&load->loading, &parts);
    return status == DCP_OK ? hooked : status;
}

static void tear_down(struct load *load)
{
    loaded_objects_free(&load->objects);
    load_planning_free(&load->planning);
    loading_free(&load->loading);
}

/* What has been planned goes; options and operation stay. */
static void start_over(struct load *load)
{
    tear_down(load);
    load->objects = (struct loaded_objects){0};
    load->limit = (struct load_limit){0};
}

/* All ranks share a lack of memory, and no destination was touched: if it comes from the limit,
 * they find out together what would do. */
static dcp_status explain(struct load *load, dcp_state *state, dcp_load_report **report)
{
    bool reached = load->limit.too_small || memory_account_limit_reached() != 0;
    uint64_t smallest = 0;
    struct error_story story;

    error_save(&story);
    dcp_status asked = agree(load, "asking whether the memory limit was reached",
                             reached ? DCP_ERR_NO_MEMORY : DCP_OK);
    if (asked != DCP_ERR_NO_MEMORY)
        return error_restore(&story);
    start_over(load);
    memory_account_set_limit(load->operation.account, 0);
    load->imagined = true;
    dcp_status status = run(load, state, set_up(load, DCP_OK), report);
    status = load_limit_share(&load->options, status, load->limit.smallest, &smallest);
    if (status != DCP_OK || smallest <= load->options.memory_limit)
        return status != DCP_OK ? status : error_restore(&story);
    return dcp_error_set(DCP_ERR_NO_MEMORY,
                         "memory_limit is %" PRIu64
                         " bytes, the smallest that would do is %" PRIu64,
                         load->options.memory_limit, smallest);
}

static void drop_report(dcp_load_report **report)
{
    if (!report)
        return;
    dcp_load_report_free(*report);
    *report = NULL;
}

dcp_status dcp_load_sized(dcp_state *state, const char *path, const dcp_load_options *options,
                          size_t options_size, dcp_load_report **report)
{
    struct load load = {.path = path};
    dcp_load_options ours;
    const dcp_load_options *given = &ours;
    RETURN_IF_ERROR(sized_read(&ours, sizeof ours, options, options_size, "dcp_load_options"));

    dcp_status started = operation_start(&load.operation, given->progress, given->progress_context,
                                         given->memory_limit);
    if (report)
        *report = NULL;
    dcp_status status = options_check_load(given, &load.options);
    status = status == DCP_OK ? started : status;
    load.coordinates = dcp_group_rank(load.options.group) == load.options.coordinator;
    status = operation_enter(&load.operation, DCP_PHASE_PLANNING, set_up(&load, status));
    status = run(&load, state, status, report);
    note_figures(&load, report ? *report : NULL);
    if (status == DCP_ERR_NO_MEMORY && !load.begun) {
        drop_report(report);
        status = explain(&load, state, report);
        drop_report(report);
    }
    tear_down(&load);
    operation_finish(&load.operation, given->figures);
    return status;
}
