/* SPDX-License-Identifier: BSD-3-Clause */
/* Removing checkpoints of a run that no rule keeps, and pins. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "dcp/checkpoint.h"
#include "run/run_leftovers.h"
#include "run/run_mirror.h"
#include "run/run_own.h"
#include "run/run_prune_apply.h"
#include "run/run_prune_others.h"
#include "run/run_stamp.h"

/* A run on its way through the rules. */
struct pruning {
    struct run_place place;
    struct run_own own;
    const dcp_run_prune_options *options;
    dcp_run_keep keep;
    struct run_names names;
    dcp_run_list list; /* an entry for each candidate, to be checked */
    struct run_candidate *candidates;
    struct run_layout layout;
    char layout_names[RUN_NAME_MAX];
};

/* ---- what is there ---- */

static bool is_noted(const struct pruning *pruning, const char *prefix, const char *name)
{
    char note[2 * RUN_NAME_MAX];
    run_own_note_name(prefix, name, note);
    return run_names_has(&pruning->names, note);
}

static int compare_steps(const void *first, const void *second)
{
    const struct run_entry *a = first, *b = second;
    return (a->numbers.step > b->numbers.step) - (a->numbers.step < b->numbers.step);
}

static dcp_status take_names(struct pruning *pruning)
{
    dcp_run_list *list = &pruning->list;
    size_t room = pruning->names.count + 1;
    list->entries = memory_allocate_zeroed(room, sizeof *list->entries);
    pruning->candidates = memory_allocate_zeroed(room, sizeof *pruning->candidates);
    if (!list->entries || !pruning->candidates)
        return error_no_memory(room * sizeof *list->entries, "checkpoints of a run");
    for (size_t i = 0; i < pruning->names.count; i++) {
        const char *name = pruning->names.names[i];
        int64_t step;
        if (run_own_step(&pruning->own, name, &step))
            list->entries[list->count++] =
                (struct run_entry){.path = name,
                                   .name = name,
                                   .folder = "",
                                   .layout = &pruning->layout,
                                   .kind = pruning->layout.kind,
                                   .numbers = {.has_step = true, .step = step},
                                   .why = ""};
    }
    if (list->count > 1)
        qsort(list->entries, list->count, sizeof *list->entries, compare_steps);
    return DCP_OK;
}

static dcp_status read_metric(const struct pruning *pruning, struct run_candidate *candidate)
{
    const struct run_stamp_keys keys = {.metric = pruning->keep.metric};
    struct run_stamp stamp;
    if (pruning->keep.best <= 0)
        return DCP_OK;
    dcp_status status = run_stamp_read(&pruning->place, candidate->name, NULL, 0, &keys, &stamp);
    candidate->has_metric = status == DCP_OK && stamp.has_metric;
    candidate->metric = stamp.metric;
    return run_place_gives_up(status) ? status : DCP_OK;
}

static dcp_status look_at(struct pruning *pruning, size_t index)
{
    struct run_candidate *candidate = &pruning->candidates[index];
    const struct run_entry *entry = &pruning->list.entries[index];
    const char *name = entry->name;
    enum run_owner owner;
    *candidate = (struct run_candidate){.name = name,
                                        .step = entry->numbers.step,
                                        .pinned = is_noted(pruning, RUN_PIN, name),
                                        .removing = is_noted(pruning, RUN_REMOVING, name)};
    RETURN_IF_ERROR(run_own_owner(&pruning->place, name, pruning->own.identity, &owner));
    candidate->ours = owner == RUN_OWNER_US;
    /* There is nothing that another run could lose, and its mark protects a save that runs. */
    if (!candidate->ours)
        RETURN_IF_ERROR(
            run_own_is_only_begun(&pruning->place, &pruning->own, name, &candidate->ours));
    if (!candidate->ours)
        snprintf(candidate->why, sizeof candidate->why, "%s",
                 owner == RUN_OWNER_OTHER ? "of another run" : "does not say which run's it is");
    if (!candidate->ours && !candidate->removing)
        return DCP_OK;
    RETURN_IF_ERROR(run_check(&pruning->list, &pruning->place, index));
    candidate->whole = entry->complete;
    candidate->unix_time = entry->unix_time;
    if (!candidate->whole)
        snprintf(candidate->why, sizeof candidate->why, "not whole: %.120s", entry->why);
    if (run_entry_is_copy(entry)) {
        candidate->ours = false;
        snprintf(candidate->why, sizeof candidate->why, "a copy of step %" PRId64,
                 entry->saved_step);
    }
    return candidate->ours && candidate->whole ? read_metric(pruning, candidate) : DCP_OK;
}

/* ---- removing ---- */

static dcp_status remove_note(const struct pruning *pruning, const char *prefix, const char *name)
{
    char note[2 * RUN_NAME_MAX];
    if (!is_noted(pruning, prefix, name) && strcmp(prefix, RUN_REMOVING) != 0)
        return DCP_OK;
    run_own_note_name(prefix, name, note);
    dcp_status status = run_place_remove(&pruning->place, "", note);
    return status == DCP_ERR_NOT_FOUND ? DCP_OK : status;
}

/* What layouts put beside the files of a save. */
static void remove_side_files(const struct pruning *pruning, const char *name)
{
    static const char *const files[] = {"train_state.pt", "run_config.yaml"};
    struct saved_error error;
    error_save(&error);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (pruning->own.layout != DCP_RUN_LAYOUT_DCP)
            run_place_remove(&pruning->place, name, files[i]);
    error_restore(&error);
    run_place_remove_folder(&pruning->place, name);
}

/* The note first: should the removal be interrupted, the next one goes on, whatever is left. */
static dcp_status remove_checkpoint(const struct pruning *pruning, const char *name)
{
    const dcp_remove_options options = {.storage = pruning->place.storage};
    char note[2 * RUN_NAME_MAX];
    run_own_note_name(RUN_REMOVING, name, note);
    RETURN_IF_ERROR(run_place_publish(&pruning->place, "", note, "", 0, DCP_PUBLISH_ALWAYS));
    char *id = run_place_id(&pruning->place, name);
    dcp_status status = id ? dcp_checkpoint_remove(id, &options, NULL) : DCP_ERR_NO_MEMORY;
    memory_release(id);
    if (status == DCP_ERR_NOT_FOUND)
        status = DCP_OK;
    if (status == DCP_OK)
        remove_side_files(pruning, name);
    if (status == DCP_OK)
        status = remove_note(pruning, RUN_FAILED, name);
    if (status == DCP_OK)
        status = run_mirror_forget(&pruning->place, name);
    if (status == DCP_OK || status == DCP_ERR_BUSY) {
        struct saved_error error;
        error_save(&error);
        dcp_status noted = remove_note(pruning, RUN_REMOVING, name);
        if (status == DCP_OK)
            return noted;
        error_restore(&error);
    }
    return status;
}

static dcp_status remove_candidate(void *context, size_t index)
{
    const struct pruning *pruning = context;
    return remove_checkpoint(pruning, pruning->candidates[index].name);
}

static dcp_status prune(struct pruning *pruning, uint64_t *removed)
{
    const dcp_run_prune_options *options = pruning->options;
    const struct run_bounds bounds = {.now = clock_wall_ns() / 1000000000,
                                      .has_bound = options->has_bound,
                                      .bound = options->bound};
    const struct run_removals removals = {&pruning->place, options, &pruning->keep,
                                          remove_candidate, pruning};
    RETURN_IF_ERROR(take_names(pruning));
    size_t count = pruning->list.count;
    for (size_t i = 0; i < count; i++)
        RETURN_IF_ERROR(look_at(pruning, i));
    run_retention_decide(&pruning->keep, &bounds, pruning->candidates, count);
    RETURN_IF_ERROR(run_prune_apply(&removals, pruning->candidates, count, removed));
    return options->dry_run || run_prune_is_stopped(options)
               ? DCP_OK
               : run_leftovers_remove(&pruning->place, &pruning->own, &pruning->names, bounds.now);
}

/* ---- the calls ---- */

static dcp_status read_run(struct pruning *pruning)
{
    const char *identity = pruning->options->identity;
    bool found;
    RETURN_IF_ERROR(run_own_read(&pruning->place, "", &pruning->own, &found));
    if (!found)
        return dcp_error_set(DCP_ERR_NOT_FOUND,
                             "%s holds no run: it has no " RUN_OWN_FILE
                             "; of another framework's run the layout must be named",
                             pruning->place.root);
    if (identity && !run_own_identity_is_valid(identity))
        return dcp_error_set(DCP_ERR_ARGUMENT, "\"%.100s\" is no identity of a run", identity);
    if (identity)
        snprintf(pruning->own.identity, sizeof pruning->own.identity, "%s", identity);
    run_own_layout(&pruning->own, pruning->layout_names, &pruning->layout);
    RETURN_IF_ERROR(run_place_list(&pruning->place, "", &pruning->names, &found));
    return pruning->names.status;
}

static dcp_status prune_ours(struct pruning *pruning, uint64_t *removed)
{
    RETURN_IF_ERROR(read_run(pruning));
    return prune(pruning, removed);
}

dcp_status dcp_run_prune_sized(const char *path, const dcp_run_prune_options *options,
                               size_t options_size, uint64_t *removed)
{
    dcp_run_prune_options ours;
    uint64_t count = 0;
    if (!path || !*path)
        return dcp_error_set(DCP_ERR_ARGUMENT, "pruning a run needs its directory");
    RETURN_IF_ERROR(sized_read(&ours, sizeof ours, options, options_size, "dcp_run_prune_options"));
    struct pruning *pruning = memory_allocate_zeroed(1, sizeof *pruning);
    if (!pruning)
        return error_no_memory(sizeof *pruning, "pruning a run");
    pruning->options = &ours;
    run_place_init(&pruning->place, ours.storage, path);
    arena_init(&pruning->list.arena, 0);
    dcp_status status = DCP_OK;
    if (ours.keep)
        status = sized_read(&pruning->keep, sizeof pruning->keep, ours.keep, ours.keep->size_of,
                            "dcp_run_keep");
    if (status == DCP_OK && pruning->keep.best > 0 && !pruning->keep.metric)
        status = dcp_error_set(DCP_ERR_ARGUMENT, "keeping the best ones needs a metric");
    if (status == DCP_OK && ours.layout)
        status = run_prune_others(path, &ours, &pruning->keep, &count);
    else if (status == DCP_OK)
        status = prune_ours(pruning, &count);
    if (removed)
        *removed = count;
    run_names_free(&pruning->names);
    memory_release(pruning->list.entries);
    memory_release(pruning->candidates);
    arena_free(&pruning->list.arena);
    memory_release(pruning);
    return status;
}

dcp_status dcp_run_pin_sized(const char *path, const char *name, bool pinned,
                             const dcp_run_pin_options *options, size_t options_size)
{
    dcp_run_pin_options ours;
    struct run_place place;
    struct run_names names;
    char note[2 * RUN_NAME_MAX];
    bool found = false;
    if (!path || !*path || !name || !*name || strchr(name, '/') || *name == '.' ||
        strlen(name) >= RUN_NAME_MAX)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "pinning needs a run, and the name of a checkpoint in it");
    RETURN_IF_ERROR(sized_read(&ours, sizeof ours, options, options_size, "dcp_run_pin_options"));
    run_place_init(&place, ours.storage, path);
    run_own_note_name(RUN_PIN, name, note);
    if (!pinned)
        return run_place_remove(&place, "", note);
    dcp_status status = run_place_list(&place, name, &names, &found);
    if (status == DCP_OK && (!found || names.count == 0))
        status = dcp_error_set(DCP_ERR_NOT_FOUND, "%s/%s: no such checkpoint", path, name);
    run_names_free(&names);
    return status == DCP_OK ? run_place_publish(&place, "", note, "", 0, DCP_PUBLISH_ALWAYS)
                            : status;
}
