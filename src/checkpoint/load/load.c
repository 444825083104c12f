/* SPDX-License-Identifier: BSD-3-Clause */
#include "dcp/load.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/sized.h"
#include "checkpoint/hooks/load_hooks.h"
#include "checkpoint/load/load_report.h"
#include "checkpoint/load/loading.h"
#include "checkpoint/operation/options.h"
#include "group/group.h"

dcp_status loading_agree(const struct dcp_loading *loading, const char *phase, dcp_status status)
{
    struct dcp_collective call = {phase, loading->options.timeout_seconds};
    return group_agree(loading->options.group, &call, status);
}

struct load_sharing loading_sharing(struct dcp_loading *loading)
{
    return (struct load_sharing){
        .options = &loading->options,
        .metadata = &loading->planning.stored.metadata,
        .flat = &loading->planning.flat,
        .plan = &loading->planning.plan,
        .reader = loading->planning.stored.reader,
        .progress = &loading->operation.progress,
    };
}

/* The last steps, after the plans are made. status: this rank's status so far. */
typedef dcp_status (*last_steps)(struct dcp_loading *loading, dcp_status status);

static dcp_status fill(struct dcp_loading *loading, dcp_status status)
{
    RETURN_IF_ERROR(loading->steps.prepare(loading, status));
    RETURN_IF_ERROR(loading->steps.read(loading));
    return loading->steps.finish(loading);
}

/* Of a dry run. */
static dcp_status measure(struct dcp_loading *loading, dcp_status status)
{
    return loading->steps.measure(loading, status);
}

/* A rank that cannot compute the verdict goes on with its own failure, and learns the others' in
 * the next exchange. Every rank computes the same verdict, so the message names no rank. */
static dcp_status pass_verdict(struct dcp_loading *loading, dcp_status verdict, last_steps last)
{
    struct saved_error error;
    error_save(&error);
    dcp_status heard = last(loading, verdict);
    return heard == verdict ? error_restore(&error) : heard;
}

static dcp_status run(struct dcp_loading *loading, dcp_state *state, dcp_status status,
                      dcp_load_report **report, last_steps last)
{
    struct load_planning *planning = &loading->planning;
    dcp_status decoded;
    RETURN_IF_ERROR(load_planning_run(loading, state, status, &decoded));
    if (decoded != DCP_OK)
        return last(loading, decoded);

    dcp_status reported = report ? load_report_new(&planning->all, report) : DCP_OK;
    status =
        load_differences_judge(&planning->all, loading->options.strictness,
                               loading->options.allow_unused_patterns, &planning->stored.metadata);
    if (status != DCP_OK && status != DCP_ERR_NO_MEMORY)
        return pass_verdict(loading, status, last);
    return last(loading, status != DCP_OK ? status : reported);
}

/* Logs which bytes could not be checked, and why. */
static void log_unchecked(const struct dcp_loading *loading, const struct shard_read_figures *read)
{
    char bare[96] = "", partial[96] = "";
    uint64_t parts = read->bytes_unchecked - read->bytes_bare;
    if (read->bytes_unchecked == 0 || loading->options.verification == DCP_VERIFY_NONE)
        return;
    if (read->bytes_bare > 0)
        snprintf(bare, sizeof bare, ", %" PRIu64 " because their files have no checksums",
                 read->bytes_bare);
    if (parts > 0)
        snprintf(partial, sizeof partial,
                 ", %" PRIu64 " because they are parts of records with a single checksum", parts);
    log_line(DCP_LOG_INFO,
             "%s: %" PRIu64 " of %" PRIu64 " bytes that were read were not checked%s%s",
             loading->path ? loading->path : "", read->bytes_unchecked,
             read->bytes_checked + read->bytes_unchecked, bare, partial);
}

static void note_figures(struct dcp_loading *loading, dcp_load_report *report)
{
    struct shard_read_figures read;
    dcp_figures *figures = &loading->operation.figures;
    const struct load_planning *planning = &loading->planning;

    figures->items = loading->items;
    figures->bytes_wanted = loading->bytes_wanted;
    figures->plan_reused = planning->reused;
    if (!planning->stored.reader)
        return;
    shard_reader_figures(planning->stored.reader, &read);
    figures->bytes_read = read.bytes_read;
    figures->bytes_checked = read.bytes_checked;
    figures->bytes_unchecked = read.bytes_unchecked;
    load_report_note(report, read.bytes_checked, read.bytes_unchecked);
    log_unchecked(loading, &read);
    figures->files = read.files_opened;
    figures->direct = read.direct;
    figures->ring = read.ring;
}

/* Sets up a load, after its options have been checked. */
static dcp_status set_up(struct dcp_loading *loading, dcp_status status)
{
    load_planning_init(&loading->planning, &loading->options);
    loading->steps = load_steps_default;
    loading->files = &loading->own;
    if (status == DCP_OK)
        status = storage_take(&loading->own, loading->options.storage);
    if (status == DCP_OK)
        status =
            load_names_init(&loading->planning.names,
                            &(struct name_filter){.include = loading->options.include,
                                                  .include_count = loading->options.include_count,
                                                  .exclude = loading->options.exclude,
                                                  .exclude_count = loading->options.exclude_count},
                            loading->options.renames, loading->options.rename_count);
    return status == DCP_OK ? load_hooks_take(loading) : status;
}

static void tear_down(struct dcp_loading *loading)
{
    loaded_objects_free(&loading->objects);
    load_planning_free(&loading->planning);
    load_hooks_free(loading);
}

/* Drops all plans; keeps options and operation. */
static void start_over(struct dcp_loading *loading)
{
    tear_down(loading);
    loading->objects = (struct loaded_objects){0};
    loading->limit = (struct load_limit){0};
}

/* All ranks have failed for lack of memory, with no destination changed. If the limit is the
 * reason, they find the smallest sufficient limit together. */
static dcp_status explain(struct dcp_loading *loading, dcp_state *state, dcp_load_report **report)
{
    bool reached = loading->limit.too_small || memory_account_limit_reached() != 0;
    uint64_t smallest = 0;
    struct saved_error error;

    error_save(&error);
    dcp_status asked = loading_agree(loading, "asking whether the memory limit was reached",
                                     reached ? DCP_ERR_NO_MEMORY : DCP_OK);
    if (asked != DCP_ERR_NO_MEMORY)
        return error_restore(&error);
    start_over(loading);
    /* No limit, but what is measured goes about it as if there was one. */
    memory_account_set_limit(loading->operation.account, UINT64_MAX);
    dcp_status status = run(loading, state, set_up(loading, DCP_OK), report, measure);
    status = load_limit_share(&loading->options, status, loading->limit.smallest, &smallest);
    if (status != DCP_OK || smallest <= loading->options.memory_limit)
        return status != DCP_OK ? status : error_restore(&error);
    return dcp_error_set(DCP_ERR_NO_MEMORY,
                         "memory_limit is %" PRIu64
                         " bytes, but the smallest sufficient limit is %" PRIu64,
                         loading->options.memory_limit, smallest);
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
    struct dcp_loading loading = {.path = path};
    dcp_load_options ours;
    const dcp_load_options *given = &ours;
    RETURN_IF_ERROR(sized_read(&ours, sizeof ours, options, options_size, "dcp_load_options"));

    dcp_status started = operation_start(&loading.operation, given->progress,
                                         given->progress_context, given->memory_limit);
    if (report)
        *report = NULL;
    dcp_status status = options_check_load(given, &loading.options);
    group_enter(loading.options.group, "dcp_load");
    status = status == DCP_OK ? started : status;
    loading.coordinates = dcp_group_rank(loading.options.group) == loading.options.coordinator;
    status = operation_enter(&loading.operation, DCP_PHASE_PLANNING, set_up(&loading, status));
    status = run(&loading, state, status, report, fill);
    note_figures(&loading, report ? *report : NULL);
    if (status == DCP_ERR_NO_MEMORY && !loading.begun) {
        drop_report(report);
        status = explain(&loading, state, report);
        drop_report(report);
    }
    tear_down(&loading);
    operation_finish(&loading.operation, given->figures);
    return status;
}
