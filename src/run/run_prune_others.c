/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/run_prune_others.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "run/run_contents.h"
#include "run/run_own.h"
#include "run/run_prune_apply.h"
#include "run/run_remove.h"
#include "run/run_stamp.h"

enum { POINTER_MAX = 255 };

/* A run on its way through the rules. */
struct pruning {
    struct run_place place;
    const dcp_run_prune_options *options;
    const dcp_run_keep *keep;
    dcp_run_list *list;
    const char *folder;     /* that holds the steps */
    struct run_names names; /* in it */
    size_t *entries;        /* of the list, oldest first: those of the layout */
    bool *named;            /* by a mark or a link */
    struct run_candidate *candidates;
    size_t count;
};

/* ---- the layout ---- */

/* "Megatron Core" and "megatron-core" are one. */
static bool is_same_name(const char *a, const char *b)
{
    for (;; a++, b++) {
        while (*a == ' ' || *a == '-' || *a == '_')
            a++;
        while (*b == ' ' || *b == '-' || *b == '_')
            b++;
        if (!*a || tolower((unsigned char)*a) != tolower((unsigned char)*b))
            return !*a && !*b;
    }
}

static dcp_status check_layout(const char *layout)
{
    char known[512] = "";
    for (size_t i = 0; i < run_layout_count; i++) {
        const char *framework = run_layouts[i].framework;
        size_t length = strlen(known);
        if (is_same_name(framework, layout))
            return DCP_OK;
        if (i == 0 || strcmp(framework, run_layouts[i - 1].framework) != 0)
            snprintf(known + length, sizeof known - length, "%s%s", length > 0 ? ", " : "",
                     framework);
    }
    return dcp_error_set(DCP_ERR_ARGUMENT, "\"%.100s\" is no layout: expected one of %s", layout,
                         known);
}

/* ---- what is there ---- */

static const struct run_entry *pruning_entry(const struct pruning *pruning, size_t index)
{
    return &pruning->list->entries[pruning->entries[index]];
}

static bool is_of_layout(const struct pruning *pruning, const struct run_entry *entry)
{
    return run_is_candidate(entry) && entry->numbers.has_step &&
           strcmp(entry->folder, pruning->folder) == 0 &&
           is_same_name(entry->layout->framework, pruning->options->layout);
}

/* What a save of this library may be writing stays. */
static dcp_status find_owner(const struct pruning *pruning, const struct run_entry *entry,
                             struct run_candidate *candidate)
{
    struct run_names names;
    bool found;
    dcp_status status = run_place_list(&pruning->place, entry->path, &names, &found);
    if (run_names_has(&names, ".dcp_owner")) {
        candidate->ours = false;
        snprintf(candidate->why, sizeof candidate->why, "a save owns it");
    }
    run_names_free(&names);
    return status;
}

static dcp_status look_at(const struct pruning *pruning, size_t index)
{
    const struct run_entry *entry = pruning_entry(pruning, index);
    struct run_candidate *candidate = &pruning->candidates[index];
    char pin[2 * RUN_NAME_MAX];
    run_own_note_name(RUN_PIN, entry->name, pin);
    pruning->named[index] = entry->marked;
    *candidate = (struct run_candidate){.name = entry->path,
                                        .step = run_entry_step(entry),
                                        .ours = true,
                                        .whole = entry->complete,
                                        .pinned = run_names_has(&pruning->names, pin),
                                        .unix_time = entry->unix_time};
    if (!entry->complete)
        snprintf(candidate->why, sizeof candidate->why, "not whole: %.120s", entry->why);
    if (!entry->complete)
        return find_owner(pruning, entry, candidate);
    if (pruning->keep->best <= 0)
        return DCP_OK;
    const struct run_stamp_keys keys = {.metric = pruning->keep->metric};
    struct run_stamp stamp;
    dcp_status status = run_stamp_read(&pruning->place, entry->path, NULL, 0, &keys, &stamp);
    candidate->has_metric = status == DCP_OK && stamp.has_metric;
    candidate->metric = stamp.metric;
    return run_place_gives_up(status) ? status : DCP_OK;
}

/* What a link, or a text where there are no links, beside the checkpoints names: "" if nothing. */
static dcp_status read_pointer(const struct pruning *pruning, const char *name,
                               char text[RUN_LINK_MAX])
{
    const struct run_contents at = {.place = &pruning->place, .path = pruning->folder};
    struct buffer bytes;
    bool found;
    char *path = run_contents_path(&at, name);
    if (!path)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = DCP_OK;
    if (!run_place_is_link(&pruning->place, path, text)) {
        buffer_init(&bytes, 0);
        status = run_place_read(&pruning->place, path, POINTER_MAX, &bytes, &found);
        memcpy(text, bytes.size > 0 ? (const char *)bytes.data : "", bytes.size);
        text[bytes.size] = '\0';
        buffer_free(&bytes);
    }
    for (size_t length = strlen(text); length > 1 && strchr("/\n", text[length - 1]); length--)
        text[length - 1] = '\0';
    memory_release(path);
    return status;
}

/* Those to the best one and the like keep what they lead to. */
static dcp_status take_pointers(const struct pruning *pruning)
{
    for (size_t i = 0; i < pruning->names.count; i++) {
        char text[RUN_LINK_MAX];
        RETURN_IF_ERROR(read_pointer(pruning, pruning->names.names[i], text));
        const char *slash = strrchr(text, '/');
        for (size_t c = 0; c < pruning->count && *text; c++) {
            const struct run_entry *entry = pruning_entry(pruning, c);
            pruning->named[c] =
                pruning->named[c] || strcmp(slash ? slash + 1 : text, entry->name) == 0;
        }
    }
    return DCP_OK;
}

static dcp_status take_all(struct pruning *pruning)
{
    const dcp_run_list *list = pruning->list;
    size_t room = list->count + 1;
    bool found;
    pruning->folder = list->folders[0] ? list->folders[0] : "";
    if (list->folders[1])
        return dcp_error_set(DCP_ERR_DUPLICATE,
                             "both %s and %s hold steps: name the one that is meant",
                             list->folders[0], list->folders[1]);
    pruning->entries = memory_allocate_array(room, sizeof *pruning->entries);
    pruning->named = memory_allocate_zeroed(room, sizeof *pruning->named);
    pruning->candidates = memory_allocate_zeroed(room, sizeof *pruning->candidates);
    if (!pruning->entries || !pruning->named || !pruning->candidates)
        return error_no_memory(room * sizeof *pruning->candidates, "checkpoints of a run");
    RETURN_IF_ERROR(run_place_list(&pruning->place, pruning->folder, &pruning->names, &found));
    if (run_names_has(&pruning->names, RUN_OWN_FILE))
        return dcp_error_set(DCP_ERR_KIND,
                             "%s holds a run of this library: its checkpoints say whose they are, "
                             "and it is pruned without a layout",
                             pruning->place.root);
    for (size_t i = 0; i < list->count; i++)
        if (is_of_layout(pruning, &list->entries[i]))
            pruning->entries[pruning->count++] = i;
    for (size_t i = 0; i < pruning->count; i++)
        RETURN_IF_ERROR(look_at(pruning, i));
    return take_pointers(pruning);
}

/* ---- removing ---- */

/* Another one of its step that stays, with which it may share files; NULL: none. */
static const char *find_kept(const struct pruning *pruning, size_t index)
{
    for (size_t i = 0; i < pruning->count; i++)
        if (i != index && pruning->candidates[i].step == pruning->candidates[index].step &&
            pruning->candidates[i].verdict != DCP_RUN_REMOVED)
            return pruning->candidates[i].name;
    return NULL;
}

static void spare(const struct pruning *pruning)
{
    for (size_t i = 0; i < pruning->count; i++) {
        struct run_candidate *candidate = &pruning->candidates[i];
        if (candidate->verdict != DCP_RUN_REMOVED || !pruning->named[i])
            continue;
        candidate->verdict = candidate->whole ? DCP_RUN_KEPT : DCP_RUN_LEFT;
        snprintf(candidate->why, sizeof candidate->why, "a mark or a link names it");
    }
    for (size_t i = 0; i < pruning->count; i++) {
        struct run_candidate *candidate = &pruning->candidates[i];
        bool removed = candidate->verdict == DCP_RUN_REMOVED;
        const char *kept = removed && run_shares_files(pruning_entry(pruning, i)->layout)
                               ? find_kept(pruning, i)
                               : NULL;
        if (!kept)
            continue;
        candidate->verdict = DCP_RUN_LEFT;
        snprintf(candidate->why, sizeof candidate->why, "%.100s stays, which is of the same step",
                 kept);
    }
}

static dcp_status remove_candidate(void *context, size_t index)
{
    const struct pruning *pruning = context;
    return run_remove(&pruning->place, pruning_entry(pruning, index));
}

static dcp_status prune(struct pruning *pruning, uint64_t *removed)
{
    const dcp_run_prune_options *options = pruning->options;
    const struct run_bounds bounds = {.now = clock_wall_ns() / 1000000000,
                                      .has_bound = options->has_bound,
                                      .bound = options->bound};
    const struct run_removals removals = {&pruning->place, options, pruning->keep, remove_candidate,
                                          pruning};
    RETURN_IF_ERROR(take_all(pruning));
    run_retention_decide(pruning->keep, &bounds, pruning->candidates, pruning->count);
    spare(pruning);
    return run_prune_apply(&removals, pruning->candidates, pruning->count, removed);
}

dcp_status run_prune_others(const char *path, const dcp_run_prune_options *options,
                            const dcp_run_keep *keep, uint64_t *removed)
{
    const dcp_run_list_options look = {.storage = options->storage};
    struct pruning pruning = {.options = options, .keep = keep};
    RETURN_IF_ERROR(check_layout(options->layout));
    run_place_init(&pruning.place, options->storage, path);
    dcp_status status = dcp_run_list_read(path, &look, &pruning.list);
    if (status == DCP_OK)
        status = prune(&pruning, removed);
    struct saved_error error;
    error_save(&error);
    run_names_free(&pruning.names);
    memory_release(pruning.entries);
    memory_release(pruning.named);
    memory_release(pruning.candidates);
    dcp_run_list_free(pruning.list);
    return status == DCP_OK ? DCP_OK : error_restore(&error);
}
