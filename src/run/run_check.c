/* SPDX-License-Identifier: BSD-3-Clause */
/* What a layout needs, one thing after the other. */
#include "run/run_check.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/path.h"
#include "dcp/checkpoint.h"

dcp_status run_check_fault(struct run_check *check, const char *format, ...)
{
    va_list arguments;
    if (check->why[0])
        return DCP_OK;
    va_start(arguments, format);
    vsnprintf(check->why, sizeof check->why, format, arguments);
    va_end(arguments);
    return DCP_OK;
}

dcp_status run_check_judge(struct run_check *check, dcp_status status)
{
    if (status == DCP_OK || run_place_gives_up(status))
        return status;
    return run_check_fault(check, "%.400s", dcp_error_message());
}

const char *run_check_shown(const struct run_check *check, const char *path)
{
    size_t length = strlen(check->entry->path);
    if (strncmp(path, check->entry->path, length) == 0 && path[length] == '/')
        return path + length + 1;
    return path;
}

/* ---- one need ---- */

/* $ is the step's digits, & the checkpoint's name, and # the rank's number. */
static char *fill_in(const struct run_check *check, const struct run_need *need, const char *folder,
                     int64_t rank)
{
    struct buffer text;
    const struct run_numbers *numbers = &check->entry->numbers;
    buffer_init(&text, 0);
    buffer_append_format(&text, *folder ? "%s/" : "%s", folder);
    for (const char *c = need->path; *c && *c != ' '; c++) {
        if (*c == '$')
            buffer_append(&text, numbers->digits, (size_t)numbers->digit_count);
        else if (*c == '&')
            buffer_append(&text, check->entry->name, strlen(check->entry->name));
        else if (*c == '#')
            buffer_append_format(&text, "%" PRId64, rank);
        else
            buffer_append(&text, c, 1);
    }
    buffer_append_u8(&text, 0);
    if (buffer_status(&text) == DCP_OK)
        return (char *)text.data;
    buffer_free(&text);
    return NULL;
}

static dcp_status check_json(struct run_check *check, const struct run_need *need, const char *path)
{
    const struct run_contents run = {.place = check->place, .path = ""};
    bool found, good;
    RETURN_IF_ERROR(run_contents_json(&run, path, need->key, &found, &good));
    if (!found)
        return run_check_fault(check, "%s is missing", run_check_shown(check, path));
    if (!good && need->key)
        return run_check_fault(check, "%s is no JSON object with \"%s\", or cut short",
                               run_check_shown(check, path), need->key);
    if (!good)
        return run_check_fault(check, "%s is no JSON object, or cut short",
                               run_check_shown(check, path));
    return DCP_OK;
}

static dcp_status check_path(struct run_check *check, const struct run_need *need, const char *path)
{
    switch (need->kind) {
    case RUN_NEED_DCP:
        return run_check_dcp(check, path);
    case RUN_NEED_WEIGHTS:
        return run_check_weights(check, path);
    case RUN_NEED_TORCH:
        return run_check_torch(check, path);
    case RUN_NEED_JSON:
        return check_json(check, need, path);
    case RUN_NEED_ZERO:
        return run_check_zero(check, path);
    default:
        return run_check_file(check, path);
    }
}

static dcp_status check_in(struct run_check *check, const struct run_need *need, const char *name)
{
    char *path = run_contents_path(&check->contents, name);
    dcp_status status = path ? check_path(check, need, path) : DCP_ERR_NO_MEMORY;
    memory_release(path);
    return status;
}

/* Of the union of a checkpoint's stages; 0: it cannot be read. */
static dcp_status count_names(const struct run_check *check, const struct run_entry *entry,
                              size_t *count)
{
    const dcp_open_options options = {.storage = check->place->storage};
    dcp_checkpoint *checkpoint = NULL;
    char *id = run_place_id(check->place, entry->path);
    if (!id)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = dcp_checkpoint_open(id, &options, &checkpoint);
    *count = status == DCP_OK ? dcp_checkpoint_count(checkpoint) : 0;
    dcp_checkpoint_close(checkpoint);
    memory_release(id);
    return run_place_gives_up(status) ? status : DCP_OK;
}

/* The last stages may be missing: then a checkpoint next to it has more of them, and more in them.
 * A job that went on with fewer stages has as much. */
static dcp_status check_last_stage(struct run_check *check)
{
    const dcp_run_list *list = check->list;
    size_t index = (size_t)(check->entry - list->entries), ours = 0, theirs;
    for (size_t i = index > 0 ? index - 1 : index; i <= index + 1 && i < list->count; i++) {
        const struct run_entry *other = &list->entries[i];
        if (other->kind != DCP_RUN_DCP_STAGES || other->ranks <= check->entry->ranks)
            continue;
        if (ours == 0)
            RETURN_IF_ERROR(count_names(check, check->entry, &ours));
        RETURN_IF_ERROR(count_names(check, other, &theirs));
        if (ours > 0 && ours < theirs)
            return run_check_fault(check,
                                   "stages are missing: it has %zu names in %" PRId64
                                   " of them, and %s has %zu in %" PRId64,
                                   ours, check->entry->ranks, other->name, theirs, other->ranks);
    }
    return DCP_OK;
}

/* pp0, pp1 and so on: none may be missing in between. */
static dcp_status check_stages(struct run_check *check, const struct run_need *need)
{
    int64_t count = 0, last = -1;
    for (size_t i = 0; i < check->contents.names.count; i++) {
        struct run_numbers numbers;
        const char *name = check->contents.names.names[i];
        if (!run_name_match("pp#", name, &numbers))
            continue;
        count++;
        last = numbers.step > last ? numbers.step : last;
        RETURN_IF_ERROR(check_in(check, need, name));
    }
    if (count != last + 1)
        return run_check_fault(
            check, "of the stages pp0 to pp%" PRId64 " only %" PRId64 " are there", last, count);
    return check->why[0] ? DCP_OK : check_last_stage(check);
}

/* All names of a pattern, of which there must be one. */
static dcp_status check_names(struct run_check *check, const struct run_need *need)
{
    size_t found = 0;
    for (size_t i = 0; i < check->contents.names.count; i++) {
        const char *name = check->contents.names.names[i];
        if (!run_name_match_any(need->path, name))
            continue;
        found++;
        RETURN_IF_ERROR(check_in(check, need, name));
    }
    if (found > 0 || need->optional)
        return DCP_OK;
    char *missing = fill_in(check, need, "", 0);
    if (!missing)
        return DCP_ERR_NO_MEMORY;
    run_check_fault(check, "%s is missing", missing);
    memory_release(missing);
    return DCP_OK;
}

static dcp_status check_inside(struct run_check *check, const struct run_need *need)
{
    if (need->kind == RUN_NEED_DCP && !*need->path &&
        !run_names_has(&check->contents.names, ".metadata") &&
        run_contents_have(&check->contents, "pp#"))
        return check_stages(check, need);
    if (*need->path && !strchr(need->path, '/'))
        return check_names(check, need);
    return check_in(check, need, need->path);
}

/* ---- beside the checkpoint, and per rank ---- */

static dcp_status check_absent(struct run_check *check, const struct run_need *need)
{
    uint64_t size;
    bool found;
    if (!need->beside)
        return run_contents_have(&check->contents, need->path)
                   ? run_check_fault(check, "a marker says that it is not finished")
                   : DCP_OK;
    char *path = fill_in(check, need, check->entry->folder, 0);
    if (!path)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = run_place_size(check->place, path, &size, &found);
    if (status == DCP_OK && found)
        run_check_fault(check, "the marker %s says that it is not finished", path);
    memory_release(path);
    return status;
}

/* Ranks that there must be files of: of as many as wrote shards, if that is known, else as in the
 * checkpoints next to it. */
static int64_t expect_ranks(const struct run_check *check)
{
    const dcp_run_list *list = check->list;
    size_t index = (size_t)(check->entry - list->entries);
    int64_t ranks = check->entry->ranks > 1 ? check->entry->ranks : 1;
    if (check->ranks > 0)
        return check->ranks > ranks ? check->ranks : ranks;
    for (size_t i = index > 0 ? index - 1 : index; i <= index + 1 && i < list->count; i++)
        if (list->entries[i].layout == check->entry->layout && list->entries[i].ranks > ranks)
            ranks = list->entries[i].ranks;
    return ranks;
}

static dcp_status check_ranks(struct run_check *check, const struct run_need *need)
{
    int64_t ranks = expect_ranks(check);
    const char *folder = need->beside ? check->entry->folder : check->entry->path;
    const char *alone = strchr(need->path, ' '); /* the name that a single rank's file has */
    if (alone && ranks == 1 && run_names_has(&check->contents.names, alone + 1))
        return check_in(check, need, alone + 1);
    for (int64_t rank = 0; rank < ranks && !check->why[0]; rank++) {
        char *path = fill_in(check, need, folder, rank);
        dcp_status status = path ? run_check_file(check, path) : DCP_ERR_NO_MEMORY;
        memory_release(path);
        RETURN_IF_ERROR(status);
    }
    return DCP_OK;
}

static dcp_status check_beside(struct run_check *check, const struct run_need *need)
{
    char *path = fill_in(check, need, check->entry->folder, 0);
    dcp_status status = path ? check_path(check, need, path) : DCP_ERR_NO_MEMORY;
    memory_release(path);
    return status;
}

/* ---- all needs ---- */

static bool is_far(const struct run_check *check)
{
    const struct run_place *place = check->place;
    dcp_storage_traits traits = {.size_of = sizeof traits};
    void *directory;
    char *id = place->table->describe ? run_place_id(place, "") : NULL;
    if (id && run_place_open(place, id, 0, &directory) == DCP_OK) {
        place->table->describe(place->table->context, directory, &traits);
        run_place_close(place, directory);
    }
    memory_release(id);
    return traits.far;
}

/* Whether a file is in this checkpoint, or in one next to it that has the same layout. */
static dcp_status is_usual(const struct run_check *check, const char *name, bool *yes)
{
    const dcp_run_list *list = check->list;
    size_t index = (size_t)(check->entry - list->entries);
    *yes = false;
    for (size_t i = index > 0 ? index - 1 : index; i <= index + 1 && i < list->count && !*yes;
         i++) {
        const struct run_contents next = {.place = check->place, .path = list->entries[i].path};
        uint64_t size;
        if (list->entries[i].layout != check->entry->layout)
            continue;
        char *path = run_contents_path(&next, name);
        dcp_status status =
            path ? run_place_size(check->place, path, &size, yes) : DCP_ERR_NO_MEMORY;
        memory_release(path);
        RETURN_IF_ERROR(status);
    }
    return DCP_OK;
}

static dcp_status applies(struct run_check *check, const struct run_need *need, bool *yes)
{
    *yes = !need->far || is_far(check);
    if (need->as_next)
        return is_usual(check, need->path, yes);
    return need->when ? run_contents_show(&check->contents, need->when, yes) : DCP_OK;
}

/* Whether there is anything of an alternative. */
static bool is_begun(const struct run_check *check, const struct run_need *need)
{
    return run_contents_have(&check->contents, *need->path ? need->path : ".metadata __* pp#");
}

static dcp_status check_need(struct run_check *check, const struct run_need *need)
{
    bool yes;
    RETURN_IF_ERROR(applies(check, need, &yes));
    if (!yes)
        return DCP_OK;
    if (need->kind == RUN_NEED_ABSENT)
        return check_absent(check, need);
    if (need->kind == RUN_NEED_RANKS)
        return check_ranks(check, need);
    if (need->kind == RUN_NEED_MODEL_PARALLEL)
        return run_check_model_parallel(check);
    return need->beside ? check_beside(check, need) : check_inside(check, need);
}

static dcp_status check_needs(struct run_check *check)
{
    const struct run_need *need = check->entry->layout->needs;
    while (need->kind != RUN_NEED_NONE && !check->why[0]) {
        const struct run_need *last = need;
        while (last->or_next)
            last++;
        const struct run_need *chosen = need;
        while (chosen < last && !is_begun(check, chosen))
            chosen++;
        /* If there is nothing of any, the first one is what is missing. */
        if (chosen == last && last != need && !is_begun(check, last) &&
            !(last->kind == RUN_NEED_WEIGHTS &&
              run_contents_have(&check->contents, "*.safetensors *.safetensors.index.json")))
            chosen = need;
        RETURN_IF_ERROR(check_need(check, chosen));
        need = last + 1;
    }
    return DCP_OK;
}

/* A link is as whole as what it leads to. */
static bool follow(dcp_run_list *list, const struct run_entry *entry, size_t *index)
{
    if (entry->kind != DCP_RUN_LINK)
        return false;
    *index = run_list_find(list, entry->folder, entry->target);
    return *index != SIZE_MAX && list->entries[*index].kind != DCP_RUN_LINK;
}

static dcp_status finish(struct run_check *check)
{
    struct run_entry *entry = check->entry;
    entry->checked = true;
    entry->complete = !check->why[0];
    entry->bytes = check->bytes;
    entry->unix_time =
        check->unix_time ? check->unix_time : run_place_time(check->place, entry->path);
    entry->why = run_list_text(check->list, check->why);
    return entry->why ? DCP_OK : DCP_ERR_NO_MEMORY;
}

dcp_status run_check(dcp_run_list *list, const struct run_place *place, size_t index)
{
    struct run_entry *entry = &list->entries[index];
    struct run_check check = {.list = list,
                              .place = place,
                              .entry = entry,
                              .contents = {.place = place, .path = entry->path}};
    size_t target;
    bool found;
    if (entry->checked)
        return DCP_OK;
    if (follow(list, entry, &target)) {
        RETURN_IF_ERROR(run_check(list, place, target));
        if (!list->entries[target].complete)
            run_check_fault(&check, "it leads to %s, which is not whole", entry->target);
        return finish(&check);
    }
    dcp_status status = DCP_OK;
    if (!entry->layout->is_file)
        status = run_place_list(place, entry->path, &check.contents.names, &found);
    if (status == DCP_OK && !entry->layout->is_file)
        status = run_check_judge(&check, check.contents.names.status);
    if (status == DCP_OK)
        status = check_needs(&check);
    run_names_free(&check.contents.names);
    return status == DCP_OK ? finish(&check) : status;
}
