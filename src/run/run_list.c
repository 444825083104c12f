/* SPDX-License-Identifier: BSD-3-Clause */
/* The public list of a run's checkpoints. */
#include "run/run_list.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "run/run_noted.h"

const char *dcp_run_kind_name(dcp_run_kind kind)
{
    static const struct {
        dcp_run_kind kind;
        const char *name;
    } names[] = {
        {DCP_RUN_DCP, "dcp"},
        {DCP_RUN_DCP_STAGES, "dcp-stages"},
        {DCP_RUN_DCP_PART, "dcp-part"},
        {DCP_RUN_MCORE, "mcore"},
        {DCP_RUN_HF_FSDP, "hf-fsdp"},
        {DCP_RUN_AUTOMODEL, "automodel"},
        {DCP_RUN_MEGATRON_LEGACY, "megatron-legacy"},
        {DCP_RUN_PT, "pt"},
        {DCP_RUN_PT_SET, "pt-set"},
        {DCP_RUN_DEEPSPEED, "deepspeed"},
        {DCP_RUN_ORBAX, "orbax"},
        {DCP_RUN_EMERGENCY, "emergency"},
        {DCP_RUN_LINK, "link"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].kind == kind)
            return names[i].name;
    return "unknown";
}

/* ---- what the parts of a list need ---- */

const char *run_list_text(dcp_run_list *list, const char *text)
{
    const char *copy = arena_copy_text(&list->arena, text, strlen(text));
    if (!copy)
        error_no_memory(strlen(text) + 1, "the checkpoints of a run");
    return copy;
}

const char *run_list_path(dcp_run_list *list, const char *folder, const char *name)
{
    size_t length = strlen(folder), size = length + (length > 0) + strlen(name) + 1;
    char *path = arena_allocate(&list->arena, size);
    if (!path) {
        error_no_memory(size, "the checkpoints of a run");
        return NULL;
    }
    memcpy(path, folder, length);
    if (length > 0)
        path[length++] = '/';
    memcpy(path + length, name, strlen(name) + 1);
    return path;
}

size_t run_list_find(const dcp_run_list *list, const char *folder, const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->entries[i].name, name) == 0 &&
            strcmp(list->entries[i].folder, folder) == 0)
            return i;
    return SIZE_MAX;
}

/* ---- reading ---- */

/* The path without slashes at its end, so that its last part is its name. */
static const char *trim(dcp_run_list *list, const char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/' && path[length - 2] != ':')
        length--;
    const char *root = arena_copy_text(&list->arena, path, length);
    if (!root)
        error_no_memory(length + 1, "the checkpoints of a run");
    return root;
}

static dcp_status read_list(dcp_run_list *list, const char *path,
                            const dcp_run_list_options *options)
{
    struct run_place place;
    const char *root = trim(list, path);
    if (!root)
        return DCP_ERR_NO_MEMORY;
    run_place_init(&place, options->storage, root);
    RETURN_IF_ERROR(run_find(list, &place));
    run_sort(list);
    run_mark_resolve(list, &place);
    RETURN_IF_ERROR(run_latest_find(list, &place, options->latest_only));
    return run_noted_read(list, &place, options);
}

dcp_status dcp_run_list_read_sized(const char *path, const dcp_run_list_options *options,
                                   size_t options_size, dcp_run_list **list)
{
    dcp_run_list_options ours;
    if (!path || !*path || !list)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "listing a run needs its directory and a place for the list");
    *list = NULL;
    RETURN_IF_ERROR(sized_read(&ours, sizeof ours, options, options_size, "dcp_run_list_options"));
    dcp_run_list *made = memory_allocate_zeroed(1, sizeof *made);
    if (!made)
        return error_no_memory(sizeof *made, "the checkpoints of a run");
    arena_init(&made->arena, 0);
    dcp_status status = read_list(made, path, &ours);
    if (status == DCP_OK)
        *list = made;
    else
        dcp_run_list_free(made);
    return status;
}

void dcp_run_list_free(dcp_run_list *list)
{
    if (!list)
        return;
    memory_release(list->entries);
    memory_release(list->marks);
    arena_free(&list->arena);
    memory_release(list);
}

/* ---- looking ---- */

size_t dcp_run_list_count(const dcp_run_list *list)
{
    return list ? list->count : 0;
}

dcp_status dcp_run_list_checkpoint_sized(const dcp_run_list *list, size_t index,
                                         dcp_run_checkpoint *checkpoint, size_t checkpoint_size)
{
    if (!list || !checkpoint)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "the list of a run's checkpoints, or the place for one, is NULL");
    if (index >= list->count)
        return dcp_error_set(DCP_ERR_ARGUMENT, "checkpoint %zu was asked for, the run has %zu",
                             index, list->count);
    const struct run_entry *entry = &list->entries[index];
    const dcp_run_checkpoint ours = {
        .path = entry->path,
        .framework = entry->layout->framework,
        .kind = entry->kind,
        .has_step = entry->numbers.has_step,
        .checked = entry->checked,
        .complete = entry->complete,
        .latest = entry->latest,
        .marked = entry->marked,
        .step = entry->numbers.has_step ? entry->numbers.step + entry->layout->first_step : 0,
        .why = entry->why,
        .bytes = entry->bytes,
        .unix_time = entry->unix_time,
        .pinned = entry->pinned,
        .best = entry->best,
        .mirrored = entry->mirrored,
    };
    sized_write(checkpoint, checkpoint_size, &ours, sizeof ours);
    return DCP_OK;
}

size_t dcp_run_list_mark_count(const dcp_run_list *list)
{
    return list ? list->mark_count : 0;
}

dcp_status dcp_run_list_mark_sized(const dcp_run_list *list, size_t index, dcp_run_mark *mark,
                                   size_t mark_size)
{
    if (!list || !mark)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "the list of a run's checkpoints, or the place for a mark, is NULL");
    if (index >= list->mark_count)
        return dcp_error_set(DCP_ERR_ARGUMENT, "mark %zu was asked for, the run has %zu", index,
                             list->mark_count);
    const struct run_mark *found = &list->marks[index];
    const dcp_run_mark ours = {.path = found->path,
                               .text = found->text,
                               .found = found->found,
                               .checkpoint = found->checkpoint};
    sized_write(mark, mark_size, &ours, sizeof ours);
    return DCP_OK;
}

dcp_status dcp_run_list_latest(const dcp_run_list *list, size_t *index)
{
    if (!list || !index)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "the list of a run's checkpoints, or the place for one, is NULL");
    *index = list->latest;
    return list->latest_status == DCP_OK ? DCP_OK
                                         : dcp_error_set(list->latest_status, "%s", list->reason);
}

const char *dcp_run_list_reason(const dcp_run_list *list)
{
    return list ? list->reason : "";
}
