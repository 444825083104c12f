/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/run_choose.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "run/run_emergency.h"

enum { NOTE_MAX = 4096, REASONS_MAX = 3000 };

/* ---- reasons ---- */

void run_chooser_pass_over(struct run_chooser *chooser, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (chooser->reasons.size < REASONS_MAX)
        buffer_append_format(&chooser->reasons, "; %s", text);
}

void run_chooser_explain(const struct run_chooser *chooser, struct run_choice *choice,
                         const char *what, const char *is)
{
    const struct buffer *reasons = &chooser->reasons;
    snprintf(choice->reason, sizeof choice->reason, "%.800s %s%.*s", what, is, (int)reasons->size,
             reasons->data ? (const char *)reasons->data : "");
}

/* ---- notes of loads that failed ---- */

/* *failed: it did not load, and is the same save still. */
static dcp_status read_failure(const struct run_chooser *chooser, const char *name,
                               const char *save_id, bool *failed, char why[256])
{
    char note[2 * RUN_NAME_MAX];
    struct buffer text;
    run_own_note_name(RUN_FAILED, name, note);
    buffer_init(&text, 0);
    dcp_status status = run_place_read(&chooser->run->place, note, NOTE_MAX, &text, failed);
    size_t length = strlen(save_id);
    *failed = status == DCP_OK && *failed && text.size > length &&
              memcmp(text.data, save_id, length) == 0 && text.data[length] == '\n';
    if (*failed)
        snprintf(why, 256, "%.*s", (int)(text.size - length - 1),
                 (const char *)text.data + length + 1);
    buffer_free(&text);
    return status;
}

void run_chooser_remember(struct run_chooser *chooser, const struct run_choice *choice,
                          const char *why)
{
    char note[2 * RUN_NAME_MAX], text[NOTE_MAX];
    run_chooser_pass_over(chooser, "%s did not load: %.200s",
                          *choice->name ? choice->name : choice->path, why);
    if (!*choice->name) /* an emergency save, which is removed soon */
        return;
    run_own_note_name(RUN_FAILED, choice->name, note);
    int length = snprintf(text, sizeof text, "%s\n%.1000s", choice->save_id, why);
    if (run_place_publish(&chooser->run->place, "", note, text, (size_t)length,
                          DCP_PUBLISH_ALWAYS) != DCP_OK)
        log_line(DCP_LOG_WARNING, "%s/%s: that it did not load is not remembered: %s",
                 chooser->run->root, choice->name, dcp_error_message());
}

/* ---- one checkpoint ---- */

/* Where in it what is loaded lies: "" is itself; NULL: it cannot be loaded. */
static const char *inner_path(const struct run_entry *entry)
{
    const struct run_need *need = entry->layout->needs;
    if (entry->kind == DCP_RUN_DCP_PART || entry->kind == DCP_RUN_LINK)
        return NULL;
    if (entry->kind != DCP_RUN_DCP && entry->kind != DCP_RUN_DCP_STAGES &&
        entry->kind != DCP_RUN_MCORE)
        return "";
    while (need->kind != RUN_NEED_DCP && need->kind != RUN_NEED_NONE)
        need++;
    return need->kind == RUN_NEED_DCP ? need->path : NULL;
}

dcp_status run_chooser_stamp(const struct run_chooser *chooser, const struct run_place *place,
                             const char *path, struct run_choice *choice)
{
    const dcp_run_options *options = &chooser->run->options;
    struct run_optimizers optimizers;
    const struct run_stamp_keys keys = {.optimizer = run_key(options->optimizer_key, "optimizer"),
                                        .optimizers = &optimizers,
                                        .rng = run_key(options->rng_key, "rng"),
                                        .main_params =
                                            run_key(options->main_params_key, "main_params"),
                                        .metric = chooser->run->keep.metric};
    struct run_stamp stamp;
    run_optimizers_find(options->state, keys.optimizer, &optimizers);
    RETURN_IF_ERROR(run_stamp_read(place, path, NULL, 0, &keys, &stamp));
    choice->missing_optimizers =
        stamp.has_optimizer ? ~stamp.optimizers & ((UINT32_C(1) << optimizers.count) - 1) : 0;
    choice->no_optimizer = dcp_state_find(options->state, keys.optimizer) && !stamp.has_optimizer;
    snprintf(choice->save_id, sizeof choice->save_id, "%s", stamp.save_id);
    return DCP_OK;
}

bool run_chooser_wants(const struct run_chooser *chooser, dcp_run_kind kind)
{
    const char *wanted = chooser->run->options.require_kind;
    return !wanted || strcmp(wanted, dcp_run_kind_name(kind)) == 0;
}

dcp_status run_chooser_fill(const struct run_chooser *chooser, const struct run_place *place,
                            const struct run_entry *entry, struct run_choice *choice)
{
    const char *inner = inner_path(entry);
    char joined[2048];
    if (!inner)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "%s/%s is of kind %s, which cannot be resumed from", place->root,
                             entry->path, dcp_run_kind_name(entry->kind));
    snprintf(joined, sizeof joined, "%.1000s%s%.100s", entry->path, *inner ? "/" : "", inner);
    int64_t step = run_entry_is_copy(entry) ? entry->saved_step : run_entry_step(entry);
    *choice = (struct run_choice){
        .found = true, .kind = (int32_t)entry->kind, .step = step > 0 ? step : 0};
    char *id = run_place_id(place, joined);
    if (!id)
        return DCP_ERR_NO_MEMORY;
    snprintf(choice->path, sizeof choice->path, "%.4000s", id);
    memory_release(id);
    return run_chooser_stamp(chooser, place, joined, choice);
}

/* ---- the run's own, from the newest on ---- */

/* *fits: it is of this run, or of none and that may be taken. */
dcp_status run_chooser_check_owner(struct run_chooser *chooser, const struct run_entry *entry,
                                   bool *fits, bool *own)
{
    const dcp_run *run = chooser->run;
    enum run_owner owner;
    int64_t step;
    RETURN_IF_ERROR(run_own_owner(&run->place, entry->path, run->own.identity, &owner));
    *own = owner == RUN_OWNER_US && run_own_step(&run->own, entry->name, &step);
    *fits = owner == RUN_OWNER_US ||
            (owner == RUN_OWNER_NONE && !run->options.identity && !run->options.fresh);
    if (owner == RUN_OWNER_OTHER)
        run_chooser_pass_over(chooser, "%s is of another run", entry->path);
    else if (!*fits)
        run_chooser_pass_over(chooser, "%s does not say which run's it is", entry->path);
    if (*fits && run_entry_is_copy(entry)) {
        run_chooser_pass_over(chooser, "%s is a copy of step %" PRId64, entry->path,
                              entry->saved_step);
        *fits = false;
    }
    return DCP_OK;
}

/* Whether a whole one of this run can be resumed from; says why not. */
static dcp_status judge(struct run_chooser *chooser, const struct run_entry *entry,
                        struct run_choice *choice, bool *good)
{
    char why[256];
    bool failed, own;
    RETURN_IF_ERROR(run_chooser_check_owner(chooser, entry, good, &own));
    if (!*good)
        return DCP_OK;
    *good = false;
    if (!run_chooser_wants(chooser, entry->kind)) {
        run_chooser_pass_over(chooser, "%s is of kind %s", entry->path,
                              dcp_run_kind_name(entry->kind));
        return DCP_OK;
    }
    dcp_status status = run_chooser_fill(chooser, &chooser->run->place, entry, choice);
    if (status != DCP_OK) {
        run_chooser_pass_over(chooser, "%.500s", dcp_error_message());
        return run_place_gives_up(status) ? status : DCP_OK;
    }
    choice->own = own;
    snprintf(choice->name, sizeof choice->name, "%.120s", entry->name);
    RETURN_IF_ERROR(read_failure(chooser, entry->name, choice->save_id, &failed, why));
    if (failed)
        run_chooser_pass_over(chooser, "%s did not load before: %.200s", entry->path, why);
    else if (choice->no_optimizer && !chooser->run->options.allow_missing_optimizer &&
             !chooser->run->options.skip_optimizer)
        run_chooser_pass_over(chooser, "%s is a model only", entry->path);
    else
        *good = true;
    return DCP_OK;
}

bool run_entry_is_step(const struct run_entry *entry)
{
    return run_is_candidate(entry) && !*entry->folder && entry->numbers.has_step;
}

static dcp_status next_of_run(struct run_chooser *chooser, struct run_choice *choice)
{
    dcp_run_list *list = chooser->list;
    const struct run_place *place = &chooser->run->place;
    while (chooser->left > 0 && !choice->found) {
        size_t index = --chooser->left, twin;
        struct run_entry *entry = &list->entries[index];
        bool good = false;
        if (!run_entry_is_step(entry))
            continue;
        RETURN_IF_ERROR(run_check(list, place, index));
        if (!entry->complete)
            run_chooser_pass_over(chooser, "%s is not whole: %.200s", entry->path, entry->why);
        else
            RETURN_IF_ERROR(judge(chooser, entry, choice, &good));
        choice->found = good;
        if (!good || choice->own)
            continue;
        RETURN_IF_ERROR(run_latest_twin(list, place, index, &twin));
        if (twin != SIZE_MAX)
            return dcp_error_set(DCP_ERR_DUPLICATE,
                                 "%s/%s and %s are both step %" PRId64
                                 ": name the one that is meant",
                                 place->root, list->entries[twin].path, entry->path, choice->step);
    }
    if (choice->found) {
        run_latest_explain_marks(list, chooser->left, &chooser->reasons);
        run_chooser_explain(chooser, choice, choice->name, "is the newest one to resume from");
    }
    return buffer_status(&chooser->reasons);
}

/* ---- all of it ---- */

/* Emergency saves that are newer than what the run has come first. */
static dcp_status next_of_all(struct run_chooser *chooser, struct run_choice *choice)
{
    if (!chooser->has_next) {
        chooser->next = (struct run_choice){0};
        RETURN_IF_ERROR(next_of_run(chooser, &chooser->next));
        chooser->has_next = true;
    }
    RETURN_IF_ERROR(
        run_emergency_next(chooser, chooser->next.found ? chooser->next.step : -1, choice));
    if (choice->found)
        return DCP_OK;
    *choice = chooser->next;
    chooser->has_next = false;
    if (choice->found)
        run_chooser_explain(chooser, choice, choice->name, "is the newest one to resume from");
    return DCP_OK;
}

void run_chooser_init(struct run_chooser *chooser, dcp_run *run)
{
    *chooser = (struct run_chooser){.run = run, .emergency_step = INT64_MAX};
    buffer_init(&chooser->reasons, 0);
}

void run_chooser_free(struct run_chooser *chooser)
{
    dcp_run_list_free(chooser->list);
    dcp_run_list_free(chooser->other);
    buffer_free(&chooser->reasons);
}

/* Found and in order, but nothing is checked. */
static dcp_status read_list(struct run_chooser *chooser)
{
    chooser->list = memory_allocate_zeroed(1, sizeof *chooser->list);
    if (!chooser->list)
        return error_no_memory(sizeof *chooser->list, "the checkpoints of a run");
    arena_init(&chooser->list->arena, 0);
    RETURN_IF_ERROR(run_find(chooser->list, &chooser->run->place));
    run_sort(chooser->list);
    run_mark_resolve(chooser->list, &chooser->run->place);
    chooser->left = chooser->list->count;
    return DCP_OK;
}

static dcp_status choose(struct run_chooser *chooser, struct run_choice *choice)
{
    const char *reference = chooser->run->options.reference;
    *choice = (struct run_choice){0};
    if (!chooser->list)
        RETURN_IF_ERROR(read_list(chooser));
    if (reference && *reference && strcmp(reference, "latest") != 0)
        return run_reference_take(chooser, reference, choice);
    return next_of_all(chooser, choice);
}

static dcp_status choose_pretrained(struct run_chooser *chooser, struct run_choice *choice)
{
    const char *path = chooser->run->options.pretrained;
    chooser->model_only = true;
    RETURN_IF_ERROR(run_reference_path(chooser, path, choice));
    choice->pretrained = true;
    run_chooser_explain(chooser, choice, choice->path,
                        "gives the model alone, as there is nothing to resume from");
    return DCP_OK;
}

dcp_status run_chooser_next(struct run_chooser *chooser, struct run_choice *choice)
{
    const dcp_run_options *options = &chooser->run->options;
    RETURN_IF_ERROR(choose(chooser, choice));
    if (choice->found || chooser->tried++ > 0)
        return DCP_OK;
    run_chooser_explain(chooser, choice, chooser->run->root, "has nothing to resume from");
    if (options->if_missing == DCP_RUN_MISSING_FAIL)
        return dcp_error_set(DCP_ERR_NOT_FOUND, "%.900s", choice->reason);
    return options->pretrained ? choose_pretrained(chooser, choice) : DCP_OK;
}
