/* SPDX-License-Identifier: BSD-3-Clause */
/* What a reference names: a step, the best one, a checkpoint of the run or of another place. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "run/run_choose.h"

static dcp_status refuse(const struct run_choice *choice, const struct run_chooser *chooser)
{
    if (!run_chooser_wants(chooser, (dcp_run_kind)choice->kind))
        return dcp_error_set(DCP_ERR_KIND, "%s is of kind %s, not %s", choice->path,
                             dcp_run_kind_name((dcp_run_kind)choice->kind),
                             chooser->run->options.require_kind);
    if (!chooser->model_only && choice->no_optimizer &&
        !chooser->run->options.allow_missing_optimizer && !chooser->run->options.skip_optimizer)
        return dcp_error_set(DCP_ERR_KIND,
                             "%s is a model only: it has no optimizer to resume with "
                             "(allow_missing_optimizer, skip_optimizer or pretrained take it)",
                             choice->path);
    return DCP_OK;
}

static dcp_status take_named(struct run_chooser *chooser, dcp_run_list *list,
                             const struct run_place *place, size_t index, struct run_choice *choice)
{
    struct run_entry *entry = &list->entries[index];
    RETURN_IF_ERROR(run_check(list, place, index));
    if (!entry->complete)
        return dcp_error_set(DCP_ERR_NOT_FOUND, "%s/%s is not whole: %s", place->root, entry->path,
                             entry->why);
    while (entry->kind == DCP_RUN_LINK) {
        size_t target = run_list_find(list, entry->folder, entry->target);
        if (target == SIZE_MAX || list->entries[target].kind == DCP_RUN_LINK)
            break;
        entry = &list->entries[target];
    }
    RETURN_IF_ERROR(run_chooser_fill(chooser, place, entry, choice));
    choice->named = true;
    if (place == &chooser->run->place && !*entry->folder) {
        enum run_owner owner;
        RETURN_IF_ERROR(run_own_owner(place, entry->path, chooser->run->own.identity, &owner));
        choice->own = owner == RUN_OWNER_US && !run_entry_is_copy(entry);
        snprintf(choice->name, sizeof choice->name, "%.120s", entry->name);
    }
    return refuse(choice, chooser);
}

static dcp_status find_step(struct run_chooser *chooser, int64_t step, size_t *index)
{
    *index = SIZE_MAX;
    for (size_t i = 0; i < chooser->list->count; i++) {
        const struct run_entry *entry = &chooser->list->entries[i];
        if (!run_entry_is_step(entry) || run_entry_step(entry) != step)
            continue;
        if (*index != SIZE_MAX)
            return dcp_error_set(DCP_ERR_DUPLICATE, "%s/%s and %s are both step %" PRId64,
                                 chooser->run->root, chooser->list->entries[*index].path,
                                 entry->path, step);
        *index = i;
    }
    return *index != SIZE_MAX
               ? DCP_OK
               : dcp_error_set(DCP_ERR_NOT_FOUND, "%s has no checkpoint of step %" PRId64,
                               chooser->run->root, step);
}

static dcp_status find_best(struct run_chooser *chooser, size_t *index)
{
    const dcp_run_keep *keep = &chooser->run->keep;
    const struct run_stamp_keys keys = {.metric = keep->metric};
    double best = 0;
    *index = SIZE_MAX;
    if (!keep->metric)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the best checkpoint needs dcp_run_keep::metric");
    for (size_t i = 0; i < chooser->list->count; i++) {
        struct run_entry *entry = &chooser->list->entries[i];
        struct run_stamp stamp;
        bool fits = false, own;
        if (!run_entry_is_step(entry))
            continue;
        RETURN_IF_ERROR(run_check(chooser->list, &chooser->run->place, i));
        if (entry->complete)
            RETURN_IF_ERROR(run_chooser_check_owner(chooser, entry, &fits, &own));
        if (!fits)
            continue;
        RETURN_IF_ERROR(run_stamp_read(&chooser->run->place, entry->path, NULL, 0, &keys, &stamp));
        if (!stamp.has_metric)
            continue;
        if (*index == SIZE_MAX || stamp.metric == best ||
            (stamp.metric > best) == keep->higher_is_better) {
            *index = i;
            best = stamp.metric;
        }
    }
    return *index != SIZE_MAX
               ? DCP_OK
               : dcp_error_set(DCP_ERR_NOT_FOUND, "no whole checkpoint of %s says its \"%s\"",
                               chooser->run->root, keep->metric);
}

/* Without slashes and a `.metadata` at its end. */
static void trim(const char *reference, char path[4096])
{
    static const char metadata[] = "/.metadata";
    size_t length = (size_t)snprintf(path, 4096, "%.4000s", reference), last = sizeof metadata - 1;
    if (length > last && strcmp(path + length - last, metadata) == 0)
        path[length - last] = '\0';
    for (length = strlen(path); length > 1 && path[length - 1] == '/'; length--)
        path[length - 1] = '\0';
}

/* A checkpoint that is no run's: a DCP directory, stages, a file of torch.save. */
static dcp_status take_plain(const struct run_chooser *chooser, const char *path,
                             struct run_choice *choice)
{
    struct run_place place;
    size_t length = strlen(path);
    run_place_init(&place, chooser->run->options.storage, path);
    *choice = (struct run_choice){.found = true, .named = true};
    if (length > 3 && strcmp(path + length - 3, ".pt") == 0)
        choice->kind = DCP_RUN_PT;
    snprintf(choice->path, sizeof choice->path, "%.4000s", path);
    RETURN_IF_ERROR(run_chooser_stamp(chooser, &place, "", choice));
    return refuse(choice, chooser);
}

/* Whether a path is that of the run itself, however it is written. */
static bool is_run(const struct run_chooser *chooser, const struct run_place *place)
{
    const dcp_run *run = chooser->run;
    struct stat ours, theirs;
    if (place->table != run->place.table)
        return false;
    if (place->table != dcp_storage_files())
        return strcmp(place->root, run->root) == 0;
    return stat(place->root, &theirs) == 0 && stat(run->root, &ours) == 0 &&
           ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

dcp_status run_reference_path(struct run_chooser *chooser, const char *reference,
                              struct run_choice *choice)
{
    char path[4096], folder[4096];
    struct run_place place;
    const dcp_run_list_options options = {.storage = chooser->run->options.storage,
                                          .latest_only = true};
    size_t index = SIZE_MAX;
    trim(reference, path);
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
    const char *parent = !slash ? "." : slash == folder ? "/" : folder;
    run_place_init(&place, options.storage, parent);
    const char *name = slash ? path + (slash - folder) + 1 : path;
    if (is_run(chooser, &place))
        index = run_list_find(chooser->list, "", name);
    if (index != SIZE_MAX)
        return take_named(chooser, chooser->list, &chooser->run->place, index, choice);
    dcp_status status = dcp_run_list_read(parent, &options, &chooser->other);
    if (status == DCP_OK)
        index = run_list_find(chooser->other, "", name);
    if (index != SIZE_MAX)
        return take_named(chooser, chooser->other, &place, index, choice);
    if (run_place_gives_up(status))
        return status;
    dcp_run_list_free(chooser->other);
    chooser->other = NULL;
    run_place_init(&place, options.storage, path);
    if (dcp_run_list_read(path, &options, &chooser->other) == DCP_OK &&
        dcp_run_list_latest(chooser->other, &index) == DCP_OK)
        return take_named(chooser, chooser->other, &place, index, choice);
    return take_plain(chooser, path, choice);
}

/* Of this run, the newest whole one behind what is resumed from: a resume without a reference will
 * take that one, unless it goes. */
static dcp_status warn_of_later(struct run_chooser *chooser, const struct run_choice *choice)
{
    const dcp_run *run = chooser->run;
    bool fits = false, own = false;
    for (size_t i = chooser->list->count; i-- > 0 && *choice->name && choice->own;) {
        const struct run_entry *entry = &chooser->list->entries[i];
        if (!run_entry_is_step(entry) || run_entry_step(entry) <= choice->step)
            continue;
        RETURN_IF_ERROR(run_check(chooser->list, &run->place, i));
        if (entry->complete)
            RETURN_IF_ERROR(run_chooser_check_owner(chooser, entry, &fits, &own));
        if (!entry->complete || !own || !fits)
            continue;
        log_line(DCP_LOG_WARNING,
                 "%s/%s is whole and later than %s, which is resumed from: it stays until its step "
                 "is saved again, and the next resume without a reference takes it",
                 run->root, entry->path, choice->name);
        run_chooser_pass_over(chooser, "%s is later and stays", entry->path);
        break;
    }
    return DCP_OK;
}

dcp_status run_reference_take(struct run_chooser *chooser, const char *reference,
                              struct run_choice *choice)
{
    size_t index = SIZE_MAX, digits = strspn(reference, "0123456789");
    dcp_status status = DCP_OK;
    if (strcmp(reference, "best") == 0)
        status = find_best(chooser, &index);
    else if (digits > 0 && digits < 19 && !reference[digits])
        status = find_step(chooser, strtoll(reference, NULL, 10), &index);
    else
        index = run_list_find(chooser->list, "", reference);
    if (status == DCP_OK)
        status = index != SIZE_MAX
                     ? take_named(chooser, chooser->list, &chooser->run->place, index, choice)
                     : run_reference_path(chooser, reference, choice);
    if (status == DCP_OK)
        status = warn_of_later(chooser, choice);
    if (status == DCP_OK)
        run_chooser_explain(chooser, choice, choice->path, "is what was asked for");
    return status;
}
