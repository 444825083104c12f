/* SPDX-License-Identifier: BSD-3-Clause */
/* The checkpoints of a run are copied to a mirror, those that it lacks. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/sized.h"
#include "dcp/checkpoint_copy.h"
#include "run/run_mirror.h"
#include "run/run_side.h"

struct mirroring {
    dcp_run_copy_options options;
    struct run_place from, to;
    struct run_own own;
    struct run_wholes here, there;
    struct run_names names; /* in the run */
    bool is_there;          /* the mirror is a run already */
    struct saved_error first;
    bool over; /* the mirror fails: nothing else is tried */
    uint64_t made;
    char newest[RUN_NAME_MAX]; /* that is whole there; "": none */
    int64_t newest_step;
};

static void tell(const struct mirroring *mirroring, const struct run_whole *whole,
                 dcp_run_copied copied)
{
    copied.name = whole->name;
    copied.step = whole->step;
    if (mirroring->options.told)
        mirroring->options.told(mirroring->options.told_context, &copied);
}

/* ---- the mirror ---- */

static dcp_status claim(struct mirroring *mirroring)
{
    struct run_own there;
    RETURN_IF_ERROR(run_mirror_own(&mirroring->to, &there, &mirroring->is_there));
    if (mirroring->is_there && strcmp(there.identity, mirroring->own.identity) != 0)
        return dcp_error_set(DCP_ERR_EXISTS, "%s is a mirror of run %s, and not of %s",
                             mirroring->to.root, there.identity, mirroring->own.identity);
    if (mirroring->is_there && strcmp(there.pattern, mirroring->own.pattern) != 0)
        return dcp_error_set(DCP_ERR_EXISTS, "%s has checkpoints named by \"%s\", and %s by \"%s\"",
                             mirroring->to.root, there.pattern, mirroring->from.root,
                             mirroring->own.pattern);
    if (mirroring->is_there)
        return run_mirror_glance(&mirroring->to, &mirroring->own, &mirroring->there);
    if (mirroring->options.dry_run)
        return DCP_OK;
    RETURN_IF_ERROR(run_place_make(&mirroring->to));
    RETURN_IF_ERROR(run_own_write(&mirroring->to, &mirroring->own, DCP_PUBLISH_ALWAYS));
    mirroring->is_there = true;
    return DCP_OK;
}

static void take_newest(struct mirroring *mirroring, const struct run_whole *whole)
{
    if (*mirroring->newest && whole->step <= mirroring->newest_step)
        return;
    mirroring->newest_step = whole->step;
    snprintf(mirroring->newest, sizeof mirroring->newest, "%s", whole->name);
}

static bool is_there(const struct mirroring *mirroring, const struct run_whole *whole)
{
    for (size_t i = 0; i < mirroring->there.count; i++)
        if (mirroring->there.items[i].step == whole->step)
            return mirroring->there.items[i].verdict == DCP_RUN_KEPT;
    return false;
}

/* Why a checkpoint is not to be copied; NULL: it is. Where the mirror has newer ones, its own rules
 * have removed what was copied before. What it has of a later save of the step is no stale copy. */
static dcp_status refuse(const struct mirroring *mirroring, const struct run_whole *whole,
                         const struct run_made *made, const char **why)
{
    const struct run_whole *newest = run_wholes_newest(&mirroring->there);
    struct run_made other;
    bool noted = false;
    *why = NULL;
    if (is_there(mirroring, whole)) {
        dcp_status status = run_mirror_made(&mirroring->to, whole->name, &other);
        if (run_place_gives_up(status))
            return status;
        if (status == DCP_OK && other.unix_time > made->unix_time &&
            strcmp(other.save_id, made->save_id) != 0)
            *why = "the mirror has a later save of this step";
    } else if (mirroring->options.keep && newest && newest->step > whole->step) {
        RETURN_IF_ERROR(run_mirror_is_noted(&mirroring->from, whole->name, made->save_id,
                                            mirroring->to.root, &noted));
        if (noted)
            *why = "it was copied, and the mirror's rules have removed it";
    }
    return DCP_OK;
}

/* ---- one checkpoint ---- */

/* The pin, the note: the copy is made without them. */
static void finish(const struct mirroring *mirroring, const struct run_whole *whole,
                   const char *save_id)
{
    char pin[2 * RUN_NAME_MAX];
    run_own_note_name(RUN_PIN, whole->name, pin);
    dcp_status status = run_mirror_note(&mirroring->from, whole->name, save_id, mirroring->to.root);
    if (status == DCP_OK && run_names_has(&mirroring->names, pin))
        status = dcp_run_pin(mirroring->to.root, whole->name, true,
                             &(dcp_run_pin_options){.storage = mirroring->options.destination});
    if (status != DCP_OK)
        log_line(DCP_LOG_WARNING, "%s/%s was copied to %s, which is not noted: %s",
                 mirroring->from.root, whole->name, mirroring->to.root, dcp_error_message());
}

struct copy_watch {
    const dcp_run_copy_options *options;
    const char *name;
};

static bool watch(void *context, const dcp_progress *progress)
{
    const struct copy_watch *of = context;
    return of->options->progress(of->options->progress_context, of->name, progress);
}

static dcp_status copy_one(const struct mirroring *mirroring, const struct run_whole *whole,
                           dcp_copied *copied)
{
    const dcp_run_copy_options *options = &mirroring->options;
    struct copy_watch of = {.options = options, .name = whole->name};
    const dcp_copy_options ours = {.source = options->source,
                                   .destination = options->destination,
                                   .replace = true,
                                   .dry_run = options->dry_run,
                                   .bytes_per_second = options->bytes_per_second,
                                   .stopped = options->stopped,
                                   .stopped_context = options->stopped_context,
                                   .progress = options->progress ? watch : NULL,
                                   .progress_context = &of};
    char *from = run_place_id(&mirroring->from, whole->name);
    char *to = run_place_id(&mirroring->to, whole->name);
    dcp_status status =
        from && to ? dcp_checkpoint_copy(from, to, &ours, copied) : DCP_ERR_NO_MEMORY;
    memory_release(from);
    memory_release(to);
    return status;
}

/* Of failures those that say nothing of the mirror. */
static bool is_of_checkpoint(dcp_status status)
{
    return status == DCP_ERR_CHECKSUM || status == DCP_ERR_FORMAT || status == DCP_ERR_FOREIGN ||
           status == DCP_ERR_COVERAGE || status == DCP_ERR_OVERLAP || status == DCP_ERR_NOT_FOUND ||
           status == DCP_ERR_KIND || status == DCP_ERR_BUSY;
}

static void fail_one(struct mirroring *mirroring, const struct run_whole *whole, dcp_status status,
                     dcp_run_copied copied)
{
    struct saved_error error;
    error_save(&error);
    if (mirroring->first.status == DCP_OK) {
        mirroring->first = error;
        mirroring->first.status = status;
    }
    mirroring->over = mirroring->over || !is_of_checkpoint(status);
    copied.verdict = DCP_RUN_COPY_FAILED;
    copied.status = status;
    copied.why = error.text;
    tell(mirroring, whole, copied);
}

static dcp_status attempt(struct mirroring *mirroring, const struct run_whole *whole,
                          dcp_run_copied *told)
{
    dcp_copied copied = {0};
    struct run_made made;
    const char *why = NULL;
    int64_t begun = clock_monotonic_ns();
    dcp_status status = run_mirror_made(&mirroring->from, whole->name, &made);
    if (status == DCP_OK)
        status = refuse(mirroring, whole, &made, &why);
    if (status != DCP_OK)
        return status;
    if (why) {
        told->verdict = DCP_RUN_COPY_LEFT;
        told->why = why;
        return DCP_OK;
    }
    status = copy_one(mirroring, whole, &copied);
    told->verdict = copied.was_whole ? DCP_RUN_COPY_THERE : DCP_RUN_COPY_MADE;
    told->bytes = copied.bytes;
    told->kept_bytes = copied.kept_bytes;
    told->seconds = (double)(clock_monotonic_ns() - begun) / 1e9;
    if (status == DCP_OK && !mirroring->options.dry_run)
        finish(mirroring, whole, made.save_id);
    return status;
}

static void take_one(struct mirroring *mirroring, const struct run_whole *whole)
{
    dcp_run_copied told = {.why = ""};
    if (whole->verdict != DCP_RUN_KEPT) {
        told.verdict = DCP_RUN_COPY_LEFT;
        told.why = whole->why;
        tell(mirroring, whole, told);
        return;
    }
    if (mirroring->options.is_known &&
        mirroring->options.is_known(mirroring->options.is_known_context, whole->name)) {
        take_newest(mirroring, whole);
        return;
    }
    if (mirroring->over) {
        error_restore(&mirroring->first);
        fail_one(mirroring, whole, mirroring->first.status, told);
        return;
    }
    dcp_status status = attempt(mirroring, whole, &told);
    if (status != DCP_OK) {
        fail_one(mirroring, whole, status, told);
        return;
    }
    mirroring->made += told.verdict == DCP_RUN_COPY_MADE;
    if (told.verdict != DCP_RUN_COPY_LEFT)
        take_newest(mirroring, whole);
    tell(mirroring, whole, told);
}

/* ---- all of them ---- */

/* What marks say there, and what its rules remove. */
static dcp_status settle(struct mirroring *mirroring)
{
    const dcp_run_copy_options *options = &mirroring->options;
    const dcp_run_prune_options prune = {.storage = options->destination,
                                         .keep = options->keep,
                                         .identity = mirroring->own.identity,
                                         .stopped = options->stopped,
                                         .stopped_context = options->stopped_context};
    const struct run_whole *newest = run_wholes_newest(&mirroring->there);
    if (newest)
        take_newest(mirroring, newest);
    if (*mirroring->newest && mirroring->made > 0)
        RETURN_IF_ERROR(run_side_mark(&mirroring->to, &mirroring->own, mirroring->newest,
                                      mirroring->newest_step));
    return options->keep ? dcp_run_prune(mirroring->to.root, &prune, NULL) : DCP_OK;
}

static dcp_status read_source(struct mirroring *mirroring)
{
    const char *identity = mirroring->options.identity;
    bool found;
    RETURN_IF_ERROR(run_own_read(&mirroring->from, "", &mirroring->own, &found));
    if (!found)
        return dcp_error_set(DCP_ERR_NOT_FOUND, "%s holds no run: it has no " RUN_OWN_FILE,
                             mirroring->from.root);
    if (identity && !run_own_identity_is_valid(identity))
        return dcp_error_set(DCP_ERR_ARGUMENT, "\"%.100s\" is no identity of a run", identity);
    if (identity)
        snprintf(mirroring->own.identity, sizeof mirroring->own.identity, "%s", identity);
    RETURN_IF_ERROR(run_place_list(&mirroring->from, "", &mirroring->names, &found));
    return run_mirror_look(&mirroring->from, mirroring->own.identity,
                           mirroring->options.only_kept ? mirroring->options.keep : NULL,
                           &mirroring->here);
}

static dcp_status mirror(struct mirroring *mirroring)
{
    RETURN_IF_ERROR(read_source(mirroring));
    dcp_status status = claim(mirroring);
    if (status != DCP_OK) {
        error_save(&mirroring->first);
        mirroring->first.status = status;
        mirroring->over = true;
    }
    for (size_t i = mirroring->here.count; i > 0; i--)
        take_one(mirroring, &mirroring->here.items[i - 1]);
    if (!mirroring->over && !mirroring->options.dry_run) {
        status = settle(mirroring);
        if (status != DCP_OK && mirroring->first.status == DCP_OK)
            return status;
    }
    return mirroring->first.status == DCP_OK ? DCP_OK : error_restore(&mirroring->first);
}

dcp_status dcp_run_copy_sized(const char *path, const char *destination,
                              const dcp_run_copy_options *options, size_t options_size,
                              uint64_t *made)
{
    if (!path || !*path || !destination || !*destination)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "copying a run needs its directory, and one for the copies");
    struct mirroring *mirroring = memory_allocate_zeroed(1, sizeof *mirroring);
    if (!mirroring)
        return error_no_memory(sizeof *mirroring, "copying a run");
    dcp_status status = sized_read(&mirroring->options, sizeof mirroring->options, options,
                                   options_size, "dcp_run_copy_options");
    if (status == DCP_OK) {
        run_place_init(&mirroring->from, mirroring->options.source, path);
        run_place_init(&mirroring->to, mirroring->options.destination, destination);
        status = mirroring->from.table == mirroring->to.table && strcmp(path, destination) == 0
                     ? dcp_error_set(DCP_ERR_ARGUMENT, "%s cannot be its own mirror", path)
                     : mirror(mirroring);
    }
    if (made)
        *made = mirroring->made;
    run_wholes_free(&mirroring->here);
    run_wholes_free(&mirroring->there);
    run_names_free(&mirroring->names);
    memory_release(mirroring);
    return status;
}
