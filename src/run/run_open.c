/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening and closing a run. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/sized.h"
#include "run/run_emergency.h"
#include "run/run_manager.h"
#include "run/run_mirror_back.h"
#include "run/run_room.h"
#include "run/run_signal.h"
#include "run/run_tell.h"

/* That closing a run waits for removals; a slow one goes on at the next save. */
#define CLOSE_SECONDS 10.0

/* As of calls of a group. */
#define LONGEST_DEADLINE 1e9

double run_now(void)
{
    return (double)clock_monotonic_ns() / 1e9;
}

const char *run_key(const char *key, const char *usual)
{
    return key ? key : usual;
}

/* ---- options ---- */

struct sizes {
    size_t options, save, chain, load;
};

static bool is_amount(double value)
{
    return value >= 0 && isfinite(value);
}

static dcp_status check_options(const dcp_run_options *options)
{
    const char *identity = options->identity;
    if (!options->state)
        return dcp_error_set(DCP_ERR_ARGUMENT, "a run needs the state that it saves and loads");
    if (identity && !run_own_identity_is_valid(identity))
        return dcp_error_set(
            DCP_ERR_ARGUMENT,
            "\"%.100s\" is no identity of a run: expected 1 to %d letters, digits, "
            "\".\", \"_\" and \"-\"",
            identity, RUN_IDENTITY_MAX - 1);
    if (options->mode != DCP_RUN_ASYNC && options->mode != DCP_RUN_ASYNC_PINNED &&
        options->mode != DCP_RUN_ASYNC_OVERLAPPED && options->mode != DCP_RUN_BLOCKING)
        return dcp_error_set(DCP_ERR_ARGUMENT, "%d is no mode of a run", (int)options->mode);
    if (options->every_steps < 0 || options->last_step < 0 || options->allowed_failures < 0 ||
        !is_amount(options->every_seconds) || !is_amount(options->failure_seconds) ||
        !is_amount(options->overhead_percent) || !is_amount(options->stop_margin_seconds) ||
        !is_amount(options->visible_seconds))
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "an interval, limit or margin of a run is negative or not finite");
    if (!(options->timeout_seconds >= 0 && options->timeout_seconds <= LONGEST_DEADLINE))
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "the deadline of a run is %g seconds, expected 0 to %g",
                             options->timeout_seconds, LONGEST_DEADLINE);
    return DCP_OK;
}

static void set_deadline(double *seconds, const dcp_run *run)
{
    if (*seconds == 0)
        *seconds = run->options.timeout_seconds;
}

/* The run's, where its parts have none. */
static void set_deadlines(dcp_run *run)
{
    set_deadline(&run->save.timeout_seconds, run);
    set_deadline(&run->chain_options.timeout_seconds, run);
    set_deadline(&run->load.timeout_seconds, run);
}

static dcp_status read_options(dcp_run *run, const dcp_run_options *options,
                               const struct sizes *sizes)
{
    dcp_run_options *ours = &run->options;
    RETURN_IF_ERROR(sized_read(ours, sizeof *ours, options, sizes->options, "dcp_run_options"));
    RETURN_IF_ERROR(
        sized_read(&run->save, sizeof run->save, ours->save, sizes->save, "dcp_save_options"));
    RETURN_IF_ERROR(sized_read(&run->chain_options, sizeof run->chain_options, ours->chain,
                               sizes->chain, "dcp_save_chain_options"));
    RETURN_IF_ERROR(
        sized_read(&run->load, sizeof run->load, ours->load, sizes->load, "dcp_load_options"));
    if (ours->keep)
        RETURN_IF_ERROR(sized_read(&run->keep, sizeof run->keep, ours->keep, ours->keep->size_of,
                                   "dcp_run_keep"));
    RETURN_IF_ERROR(check_options(ours));
    set_deadlines(run);
    if (run->chain_options.fallback_path)
        return dcp_error_set(DCP_ERR_ARGUMENT, "a run has no fallback path");
    return run_own_set_pattern(&run->own, ours->pattern, ours->layout);
}

static void set_schedule(dcp_run *run)
{
    const dcp_run_options *options = &run->options;
    double now = run_now();
    run->schedule = (struct run_schedule){.every_steps = options->every_steps,
                                          .last_step = options->last_step,
                                          .every_seconds = options->every_seconds,
                                          .failure_seconds = options->failure_seconds,
                                          .overhead_percent = options->overhead_percent,
                                          .cost = -1,
                                          .last_begun = now};
    run->calls_left = 1;
    run->last_look = now;
    run->stop_at = options->stop_at_unix_time > 0
                       ? now + (double)options->stop_at_unix_time - (double)clock_wall_ns() / 1e9
                       : HUGE_VAL;
    run->step = run->saved_step = -1;
}

/* ---- the directory, at rank 0 ---- */

static dcp_status make_identity(char identity[RUN_IDENTITY_MAX])
{
    unsigned char random[16];
    RETURN_IF_ERROR(random_bytes(random, sizeof random, "the identity of a run"));
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(identity + 2 * i, 3, "%02x", random[i]);
    return DCP_OK;
}

static dcp_status settle_identity(dcp_run *run)
{
    const dcp_run_options *options = &run->options;
    struct run_own found;
    bool is_there, of_mirror = false;
    RETURN_IF_ERROR(run_place_make(&run->place));
    RETURN_IF_ERROR(run_own_read(&run->place, "", &found, &is_there));
    if (!is_there && !options->identity && !options->fresh)
        RETURN_IF_ERROR(run_mirror_identity(options, &found, &of_mirror));
    if (options->identity)
        snprintf(run->own.identity, sizeof run->own.identity, "%s", options->identity);
    else if ((is_there || of_mirror) && !options->fresh)
        memcpy(run->own.identity, found.identity, sizeof found.identity);
    else
        RETURN_IF_ERROR(make_identity(run->own.identity));
    if (is_there && strcmp(run->own.identity, found.identity) == 0 &&
        strcmp(run->own.pattern, found.pattern) == 0 && run->own.layout == found.layout)
        return DCP_OK;
    /* A job that says which run it is leaves the directory to whoever was there first, unless it is
     * that run with other names. */
    bool takes_over =
        !options->identity || !is_there || strcmp(run->own.identity, found.identity) == 0;
    return takes_over ? run_own_write(&run->place, &run->own, DCP_PUBLISH_ALWAYS) : DCP_OK;
}

static dcp_status open_directory(dcp_run *run)
{
    dcp_status status = run->rank == 0 ? settle_identity(run) : DCP_OK;
    return run_tell_own(run, status, &run->own);
}

/* ---- what it needs ---- */

static dcp_status make_chain(dcp_run *run)
{
    dcp_save_chain_options options = run->chain_options;
    options.group = run->options.group;
    if (run->options.mode == DCP_RUN_BLOCKING)
        return DCP_OK;
    options.staging = run->options.mode == DCP_RUN_ASYNC_PINNED       ? DCP_STAGING_PINNED
                      : run->options.mode == DCP_RUN_ASYNC_OVERLAPPED ? DCP_STAGING_OVERLAPPED
                                                                      : DCP_STAGING_BLOCKING;
    run_room_prepare(run, &options);
    return dcp_save_chain_new(&options, &run->chain);
}

/* By itself, before ranks meet. */
static dcp_status prepare(dcp_run *run, const char *path)
{
    arena_init(&run->added, 0);
    run_place_init(&run->place, run->options.storage, path);
    run->root = run_place_absolute(&run->place);
    if (!run->root)
        return DCP_ERR_NO_MEMORY;
    run->place.root = run->root;
    run->looks = memory_allocate_zeroed((size_t)run->size, sizeof *run->looks);
    if (!run->looks)
        return error_no_memory((size_t)run->size * sizeof *run->looks, "a run");
    RETURN_IF_ERROR(dcp_save_plan_cache_new(&run->plans));
    if (run->options.stop_on_signals)
        RETURN_IF_ERROR(run_signal_watch());
    run->watches_signals = run->options.stop_on_signals;
    return DCP_OK;
}

static dcp_status open_run(dcp_run *run, const char *path)
{
    const dcp_run_prune_options prune = {.storage = run->options.storage,
                                         .keep = &run->keep,
                                         .identity = run->own.identity,
                                         .spared = run_mirrors_spare,
                                         .spared_context = &run->mirrors};
    RETURN_IF_ERROR(run_agree(run, prepare(run, path)));
    RETURN_IF_ERROR(open_directory(run));
    RETURN_IF_ERROR(run_emergency_open(run));
    set_schedule(run);
    dcp_status status = run->rank == 0 ? run_mirrors_init(&run->mirrors, run) : DCP_OK;
    if (status == DCP_OK && run->rank == 0 && run->options.keep)
        status = run_background_init(&run->background, run->root, &prune);
    RETURN_IF_ERROR(run_agree(run, status));
    return make_chain(run);
}

static void free_run(dcp_run *run)
{
    struct saved_error error;
    error_save(&error);
    dcp_save_chain_free(run->chain);
    run_mirrors_stop(&run->mirrors);
    run_background_end(&run->background);
    run_mirrors_free(&run->mirrors);
    dcp_save_plan_cache_free(run->plans);
    arena_free(&run->added);
    memory_release(run->files);
    memory_release(run->looks);
    memory_release(run->resumed_path);
    memory_release(run->reason);
    run_emergency_free(run);
    /* Last, so that a second signal does not end what is being closed. */
    if (run->watches_signals)
        run_signal_leave();
    memory_release(run->root);
    memory_release(run);
    error_restore(&error);
}

dcp_status dcp_run_open_sized(const char *path, const dcp_run_options *options, size_t options_size,
                              size_t save_size, size_t chain_size, size_t load_size, dcp_run **run)
{
    const struct sizes sizes = {options_size, save_size, chain_size, load_size};
    if (!path || !*path || !options || !run)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "opening a run needs its directory, options, and a place for it");
    *run = NULL;
    dcp_run *made = memory_allocate_zeroed(1, sizeof *made);
    if (!made)
        return error_no_memory(sizeof *made, "a run");
    dcp_status status = read_options(made, options, &sizes);
    if (status != DCP_OK)
        made->options.timeout_seconds = 0; /* it may be what is wrong */
    made->rank = dcp_group_rank(made->options.group);
    made->size = dcp_group_size(made->options.group);
    status = run_agree(made, status);
    if (status == DCP_OK)
        status = open_run(made, path);
    if (status == DCP_OK)
        *run = made;
    else
        free_run(made);
    return status;
}

const char *dcp_run_identity(const dcp_run *run)
{
    return run ? run->own.identity : "";
}

dcp_status dcp_run_close(dcp_run *run)
{
    if (!run)
        return DCP_OK;
    dcp_status status = run->stop != RUN_STOP_NONE && !run->stop_saved && run->step >= 0
                            ? run_save_begin(run, run->step)
                            : DCP_OK;
    dcp_status ended = run_settle(run);
    struct saved_error error;
    error_save(&error);
    run_mirrors_wait(&run->mirrors);
    /* A job whose time is over leaves the rest to the next one. */
    if (run->stop == RUN_STOP_NONE)
        run_background_wait(&run->background, CLOSE_SECONDS);
    error_restore(&error);
    free_run(run);
    return status == DCP_OK ? ended : status;
}
