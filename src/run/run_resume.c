/* SPDX-License-Identifier: BSD-3-Clause */
/* Resuming a run: rank 0 chooses, all load. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/sized.h"
#include "dcp/checkpoint.h"
#include "run/run_choose.h"
#include "run/run_mirror_back.h"
#include "run/run_tell.h"

/* ---- options of the load ---- */

/* Patterns of names that are left out: the caller's, then those of the flags. */
struct patterns {
    const char **names;
    size_t count;
    struct run_optimizers optimizers; /* texts */
};

static void leave_out(struct patterns *patterns, const dcp_run *run, const char *key)
{
    if (dcp_state_find(run->options.state, key))
        patterns->names[patterns->count++] = key;
}

enum { FLAGS = 3 + RUN_OPTIMIZERS_MAX };

/* Some of several: those that the checkpoint has are loaded. */
static void leave_out_missing(struct patterns *patterns, const dcp_run *run,
                              const struct run_choice *choice)
{
    const dcp_run_options *options = &run->options;
    struct run_optimizers *optimizers = &patterns->optimizers;
    if (!options->allow_missing_optimizer || options->skip_optimizer || choice->pretrained)
        return;
    run_optimizers_find(options->state, run_key(options->optimizer_key, "optimizer"), optimizers);
    for (size_t i = 0; i < optimizers->count; i++) {
        if (!(choice->missing_optimizers & UINT32_C(1) << i))
            continue;
        patterns->names[patterns->count++] = optimizers->names[i];
        if (run->rank == 0)
            log_line(DCP_LOG_WARNING,
                     "%s has not all %zu optimizers: \"%s\" begins anew, as "
                     "allow_missing_optimizer says",
                     choice->path, optimizers->count, optimizers->names[i]);
    }
}

static dcp_status make_patterns(const dcp_run *run, const struct run_choice *choice,
                                struct patterns *patterns)
{
    const dcp_run_options *options = &run->options;
    const char *optimizer = run_key(options->optimizer_key, "optimizer");
    size_t count = run->load.exclude_count;
    patterns->names = memory_allocate_array(count + FLAGS, sizeof *patterns->names);
    if (!patterns->names)
        return error_no_memory((count + FLAGS) * sizeof *patterns->names, "a resume");
    for (size_t i = 0; i < count; i++)
        patterns->names[i] = run->load.exclude[i];
    patterns->count = count;
    if (options->skip_optimizer || choice->no_optimizer || choice->pretrained)
        leave_out(patterns, run, optimizer);
    leave_out_missing(patterns, run, choice);
    if (options->skip_rng || choice->pretrained)
        leave_out(patterns, run, run_key(options->rng_key, "rng"));
    if (options->skip_main_params || choice->pretrained)
        leave_out(patterns, run, run_key(options->main_params_key, "main_params"));
    if (choice->no_optimizer && !choice->pretrained && !options->skip_optimizer && run->rank == 0)
        log_line(DCP_LOG_WARNING,
                 "%s has no optimizer: \"%s\" begins anew, as allow_missing_optimizer says",
                 choice->path, optimizer);
    return DCP_OK;
}

/* A directory that rank 0 has seen may take its time to be seen by others. Ranks get the same
 * status, and so try equally often. */
static dcp_status load_when_visible(dcp_run *run, const char *path, const dcp_load_options *options)
{
    double patience = run->options.visible_seconds > 0 ? run->options.visible_seconds : 60;
    double wait = 1;
    dcp_status status = dcp_load(run->options.state, path, options, NULL);
    while (status == DCP_ERR_NOT_FOUND && run->size > 1 && patience > 0) {
        wait = wait < patience ? wait : patience;
        clock_sleep_ns((int64_t)(wait * 1e9));
        patience -= wait;
        wait *= 2;
        status = dcp_load(run->options.state, path, options, NULL);
    }
    return status;
}

static dcp_status load(dcp_run *run, const struct run_choice *choice)
{
    const char *model = run_key(run->options.model_key, "model");
    struct patterns patterns = {0};
    dcp_load_options options = run->load;
    options.group = run->options.group;
    options.storage = choice->local ? NULL : run->options.storage;
    dcp_status status = make_patterns(run, choice, &patterns);
    options.exclude = patterns.names;
    options.exclude_count = patterns.count;
    if (choice->pretrained && dcp_state_find(run->options.state, model)) {
        options.include = &model;
        options.include_count = 1;
    }
    /* What flags leave out need not be there. */
    options.allow_unused_patterns =
        options.allow_unused_patterns || patterns.count > run->load.exclude_count;
    status = run_agree(run, status);
    if (status == DCP_OK)
        status = load_when_visible(run, choice->path, &options);
    memory_release(patterns.names);
    return status;
}

/* ---- trying ---- */

/* Of failures those that say that the checkpoint is bad, and not that the state is another one. */
static bool is_damage(dcp_status status)
{
    return status == DCP_ERR_CHECKSUM || status == DCP_ERR_FORMAT || status == DCP_ERR_FOREIGN ||
           status == DCP_ERR_IO || status == DCP_ERR_NOT_FOUND || status == DCP_ERR_COVERAGE ||
           status == DCP_ERR_OVERLAP;
}

static dcp_status share_choice(dcp_run *run, struct run_chooser *chooser, struct run_choice *choice)
{
    dcp_status status = run->rank == 0 ? run_chooser_next(chooser, choice) : DCP_OK;
    return run_tell_choice(run, status, choice);
}

/* One that is damaged is tried again when a mirror has made it good. */
static dcp_status load_or_repair(dcp_run *run, const struct run_choice *choice)
{
    struct saved_error error;
    bool repaired;
    dcp_status status = load(run, choice);
    if (status == DCP_OK || !is_damage(status))
        return status;
    error_save(&error);
    RETURN_IF_ERROR(run_mirror_repair(run, choice, &repaired));
    return repaired ? load(run, choice) : error_restore(&error);
}

/* Until one loads, or there is none. */
static dcp_status try_all(dcp_run *run, struct run_chooser *chooser, struct run_choice *choice)
{
    struct saved_error error = {.status = DCP_OK};
    RETURN_IF_ERROR(run_mirror_back(run, chooser));
    for (;;) {
        RETURN_IF_ERROR(share_choice(run, chooser, choice));
        if (!choice->found)
            return error.status == DCP_OK ? DCP_OK : error_restore(&error);
        dcp_status status = load_or_repair(run, choice);
        if (status == DCP_OK || choice->named || choice->pretrained || !is_damage(status))
            return status;
        error_save(&error);
        if (run->rank == 0) {
            log_line(DCP_LOG_ERROR, "%s did not load, and an older one is taken: %s", choice->path,
                     error.text);
            run_chooser_remember(chooser, choice, error.text);
        }
    }
}

static dcp_status keep_result(dcp_run *run, const struct run_choice *choice)
{
    char *path = choice->found ? memory_copy_text(choice->path) : NULL;
    char *reason = memory_copy_text(choice->reason);
    if (!reason || (choice->found && !path)) {
        memory_release(path);
        memory_release(reason);
        return error_no_memory(sizeof *choice, "a resume");
    }
    memory_release(run->resumed_path);
    memory_release(run->reason);
    run->resumed_path = path;
    run->resumed_locally = choice->local;
    run->reason = reason;
    if (choice->found && !choice->pretrained) {
        run->step = choice->step;
        run->saved_step = choice->own ? choice->step : -1;
    }
    if (run->rank == 0)
        log_line(DCP_LOG_INFO, "%s", reason);
    return DCP_OK;
}

dcp_status dcp_run_resume_sized(dcp_run *run, dcp_run_resumed *resumed, size_t resumed_size)
{
    struct run_chooser chooser;
    if (!run)
        return dcp_error_set(DCP_ERR_ARGUMENT, "a resume needs its run");
    struct run_choice *choice = memory_allocate_zeroed(1, sizeof *choice);
    dcp_status status = choice ? DCP_OK : error_no_memory(sizeof *choice, "a resume");
    status = run_agree(run, status);
    run_chooser_init(&chooser, run);
    if (status == DCP_OK && choice)
        status = try_all(run, &chooser, choice);
    if (status == DCP_OK && choice)
        status = run_agree(run, keep_result(run, choice));
    if (status == DCP_OK)
        run_mirrors_post(&run->mirrors, NULL);
    if (status == DCP_OK && choice && resumed) {
        const dcp_run_resumed ours = {.found = choice->found,
                                      .model_only = choice->pretrained,
                                      .step = choice->pretrained ? 0 : choice->step,
                                      .kind = (dcp_run_kind)choice->kind,
                                      .path = run->resumed_path ? run->resumed_path : "",
                                      .reason = run->reason};
        sized_write(resumed, resumed_size, &ours, sizeof ours);
    }
    run_chooser_free(&chooser);
    memory_release(choice);
    return status;
}

/* ---- files of what was resumed ---- */

static dcp_status read_file(dcp_checkpoint *checkpoint, const char *name, void **bytes,
                            size_t *size)
{
    dcp_extra_file_info info;
    size_t index;
    RETURN_IF_ERROR(dcp_checkpoint_find_extra_file(checkpoint, name, &index));
    RETURN_IF_ERROR(dcp_checkpoint_extra_file(checkpoint, index, &info));
    if (info.size > SIZE_MAX)
        return error_no_memory(SIZE_MAX, name);
    RETURN_IF_ERROR(dcp_memory_allocate((size_t)info.size, bytes));
    *size = (size_t)info.size;
    dcp_status status = dcp_checkpoint_read_extra_file(checkpoint, index, *bytes, *size, NULL);
    if (status != DCP_OK) {
        dcp_memory_free(*bytes);
        *bytes = NULL;
    }
    return status;
}

dcp_status dcp_run_read_file(dcp_run *run, const char *name, void **bytes, size_t *size)
{
    dcp_checkpoint *checkpoint;
    if (!run || !name || !bytes || !size)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "reading an extra file needs its run, its name and places");
    *bytes = NULL;
    *size = 0;
    if (!run->resumed_path)
        return dcp_error_set(DCP_ERR_NOT_FOUND, "%s: nothing was resumed that has files", name);
    const dcp_open_options options = {.storage =
                                          run->resumed_locally ? NULL : run->options.storage};
    RETURN_IF_ERROR(dcp_checkpoint_open(run->resumed_path, &options, &checkpoint));
    dcp_status status = read_file(checkpoint, name, bytes, size);
    dcp_checkpoint_close(checkpoint);
    return status;
}
