/* SPDX-License-Identifier: BSD-3-Clause */
/* One save of a run after the other. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "run/run_emergency.h"
#include "run/run_manager.h"
#include "run/run_room.h"
#include "run/run_tell.h"

/* ---- the end of a save ---- */

static void drop_added(dcp_run *run)
{
    arena_free(&run->added);
    arena_init(&run->added, 0);
    run->file_count = run->added_count = 0;
}

dcp_status run_save_ended(dcp_run *run, dcp_status status, const dcp_figures *figures)
{
    double seconds = run_now() - run->saving_begun;
    struct saved_error error;
    error_save(&error);
    run_schedule_measured(&run->schedule, run->stall);
    if (seconds > run->longest_save)
        run->longest_save = seconds;
    if (run->rank == 0)
        run_figures_append(run, status, error.text, figures);
    if (status == DCP_OK) {
        run->failures = 0;
        run->saved_step = run->saving_step;
        run_emergency_clean(run, run->saved_step);
        if (run->rank == 0)
            log_line(DCP_LOG_INFO, "saved %s/%s in %.1f s, of which training waited %.2f s",
                     run->root, run->saving_name, seconds, run->stall);
        return DCP_OK;
    }
    if (run->rank == 0)
        log_line(DCP_LOG_ERROR, "%s/%s was not saved: %s", run->root, run->saving_name, error.text);
    if (run->failures++ < run->options.allowed_failures)
        return DCP_OK;
    return error_restore(&error);
}

dcp_status run_settle(dcp_run *run)
{
    dcp_figures figures = {.size_of = sizeof figures};
    run->save_ended = false;
    if (!run->saving)
        return DCP_OK;
    double begun = run_now();
    dcp_status status = dcp_future_wait(run->saving, -1);
    struct saved_error error;
    error_save(&error);
    run->stall += run_now() - begun;
    dcp_future_figures(run->saving, &figures);
    dcp_future_free(run->saving);
    run->saving = NULL;
    if (status != DCP_OK)
        error_restore(&error);
    return run_save_ended(run, status, &figures);
}

/* ---- what goes into it ---- */

static dcp_status take_file(dcp_run *run, const dcp_extra_file *file)
{
    if (run->file_count == run->file_capacity) {
        size_t capacity = run->file_capacity ? 2 * run->file_capacity : 16;
        dcp_extra_file *grown = memory_reallocate_array(run->files, capacity, sizeof *grown);
        if (!grown)
            return error_no_memory(capacity * sizeof *grown, "extra files of a run");
        run->files = grown;
        run->file_capacity = capacity;
    }
    run->files[run->file_count++] = *file;
    return DCP_OK;
}

dcp_status dcp_run_add_file(dcp_run *run, const char *name, const void *bytes, size_t size)
{
    if (!run || !name || (!bytes && size > 0) || run->file_count != run->added_count)
        return dcp_error_set(DCP_ERR_ARGUMENT, "an extra file of a run needs a name and bytes");
    dcp_extra_file file = {.size_of = sizeof file, .size = size};
    file.name = arena_copy_text(&run->added, name, strlen(name));
    file.bytes = size > 0 ? arena_copy(&run->added, bytes, size) : "";
    if (!file.name || !file.bytes)
        return error_no_memory(size, "an extra file of a run");
    RETURN_IF_ERROR(take_file(run, &file));
    run->added_count++;
    return DCP_OK;
}

dcp_status dcp_run_note(dcp_run *run, const char *name, double value)
{
    size_t i = 0;
    if (!run || !name || !*name || strlen(name) >= RUN_NOTE_MAX || strcmp(name, "run") == 0)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "a number of a run needs a name of at most %d bytes, other than "
                             "\"run\"",
                             RUN_NOTE_MAX - 1);
    while (i < run->note_count && strcmp(run->notes[i].name, name) != 0)
        i++;
    if (i == RUN_NOTES_MAX)
        return dcp_error_set(DCP_ERR_ARGUMENT, "a run has at most %d numbers", RUN_NOTES_MAX);
    memcpy(run->notes[i].name, name, strlen(name) + 1);
    run->notes[i].value = value;
    run->note_count += i == run->note_count;
    return DCP_OK;
}

static bool is_noted(const dcp_run *run, const char *key)
{
    for (size_t i = 0; i < run->note_count; i++)
        if (strcmp(run->notes[i].name, key) == 0)
            return true;
    return strcmp(key, "run") == 0;
}

/* The run's identity and numbers, and the caller's own fields. */
dcp_state *run_save_info(const dcp_run *run)
{
    const dcp_state *own = run->options.info;
    dcp_state *info = dcp_state_new();
    dcp_state_string(info, "run", run->own.identity);
    for (size_t i = 0; i < run->note_count; i++)
        dcp_state_float(info, run->notes[i].name, run->notes[i].value);
    for (size_t i = 0; i < dcp_state_count(own); i++) {
        const char *key;
        if (dcp_state_as_text(dcp_state_key_at(own, i), &key, NULL) == DCP_OK &&
            !is_noted(run, key))
            dcp_state_copy(info, key, dcp_state_at(own, i));
    }
    return info;
}

/* What is there of the same step goes if it is this run's, or nothing whole. */
static dcp_status decide_overwrite(dcp_run *run, int32_t *overwrite)
{
    char path[2 * RUN_NAME_MAX];
    enum run_owner owner;
    uint64_t size;
    bool found;
    snprintf(path, sizeof path, "%s/.metadata", run->saving_name);
    RETURN_IF_ERROR(run_place_size(&run->place, path, &size, &found));
    RETURN_IF_ERROR(run_own_owner(&run->place, run->saving_name, run->own.identity, &owner));
    *overwrite = found && owner != RUN_OWNER_US ? DCP_OVERWRITE_REFUSE : DCP_OVERWRITE_REPLACE;
    if (found && owner != RUN_OWNER_US)
        log_line(DCP_LOG_WARNING, "%s/%s is not of run %s, and is not replaced", run->root,
                 run->saving_name, run->own.identity);
    return DCP_OK;
}

dcp_extra_file run_option_file(const dcp_run *run, size_t index)
{
    const dcp_extra_file *files = run->options.files;
    dcp_extra_file ours = {0};
    size_t size = files->size_of < sizeof ours ? files->size_of : sizeof ours;
    memcpy(&ours, (const char *)files + index * files->size_of, size);
    ours.size_of = sizeof ours;
    return ours;
}

dcp_status run_save_files(dcp_run *run, int64_t step, bool with_identity)
{
    const dcp_run_options *options = &run->options;
    const dcp_extra_file mark = {.size_of = sizeof mark,
                                 .name = RUN_OWN_EXTRA,
                                 .bytes = run->own.identity,
                                 .size = strlen(run->own.identity)};
    if (options->before_save)
        RETURN_IF_ERROR(error_checked(options->before_save(options->before_save_context, run, step),
                                      "before_save"));
    for (size_t i = 0; i < options->file_count; i++) {
        const dcp_extra_file ours = run_option_file(run, i);
        if (!run_side_takes(run, &ours))
            RETURN_IF_ERROR(take_file(run, &ours));
    }
    return with_identity ? take_file(run, &mark) : DCP_OK;
}

/* At rank 0. */
static dcp_status prepare_place(dcp_run *run, int64_t step, int32_t *overwrite)
{
    RETURN_IF_ERROR(decide_overwrite(run, overwrite));
    return *overwrite == DCP_OVERWRITE_REPLACE ? run_side_write(run, step, run->saving_name)
                                               : DCP_OK;
}

/* ---- the save ---- */

static dcp_status save_state(dcp_run *run, int64_t step, int32_t overwrite, dcp_figures *figures)
{
    dcp_save_options options = run->save;
    dcp_state *info = run_save_info(run);
    char *path = info ? run_place_id(&run->place, run->saving_name) : NULL;
    dcp_status status = path ? DCP_OK : error_no_memory(0, "a save");
    options.group = run->options.group;
    options.chain = run->chain;
    options.storage = run->options.storage;
    options.overwrite = (dcp_overwrite)overwrite;
    options.has_step = true;
    options.step = step;
    options.info = info;
    options.plan_cache = run->plans;
    options.extra_files = run->files;
    options.extra_file_count = run->file_count;
    options.metadata = NULL;
    options.figures = run->chain ? NULL : figures;
    options.after_commit = run_committed;
    options.after_commit_context = run;
    status = run_agree(run, status);
    if (status == DCP_OK && run->chain)
        status = dcp_save_async(run->options.state, path, &options, &run->saving);
    else if (status == DCP_OK)
        status = dcp_save(run->options.state, path, &options);
    memory_release(path);
    dcp_state_free(info);
    return status;
}

/* filed: the status of this rank's extra files. */
static dcp_status try_once(dcp_run *run, int64_t step, dcp_status filed, dcp_figures *figures)
{
    int32_t overwrite = DCP_OVERWRITE_REFUSE;
    if (filed == DCP_OK && run->rank == 0)
        filed = prepare_place(run, step, &overwrite);
    RETURN_IF_ERROR(run_agree(run, filed));
    RETURN_IF_ERROR(run_broadcast(run, &overwrite, sizeof overwrite));
    return save_state(run, step, overwrite, figures);
}

static dcp_status begin(dcp_run *run, int64_t step, dcp_figures *figures)
{
    dcp_status filed = run_save_files(run, step, run->rank == 0);
    run_room_begin(run);
    dcp_status status = try_once(run, step, filed, figures);
    while (run_room_found(run, status))
        status = try_once(run, step, filed, figures);
    return status;
}

dcp_status run_save_begin(dcp_run *run, int64_t step)
{
    dcp_figures figures = {.size_of = sizeof figures};
    struct saved_error before;
    double begun = run_now();
    dcp_status settled = run_settle(run);
    error_save(&before);
    run->due = false;
    if (step == run->saved_step)
        return settled;
    run_schedule_began(&run->schedule, begun);
    run->saving_begun = begun;
    run->saving_step = step;
    run->step = step;
    run_own_name(&run->own, step, run->saving_name);
    dcp_status status = begin(run, step, &figures);
    run->stall = run_now() - begun;
    run->calls_left = 1;
    drop_added(run);
    if (status != DCP_OK || !run->chain)
        status = run_save_ended(run, status, &figures);
    return status == DCP_OK && settled != DCP_OK ? error_restore(&before) : status;
}

dcp_status dcp_run_save(dcp_run *run, int64_t step)
{
    if (!run || step < 0)
        return dcp_error_set(DCP_ERR_ARGUMENT, "a save needs its run, and no negative step");
    return run_save_begin(run, step);
}

dcp_status dcp_run_flush(dcp_run *run)
{
    return run ? run_settle(run)
               : dcp_error_set(DCP_ERR_ARGUMENT, "waiting for a save needs its run");
}
