/* SPDX-License-Identifier: BSD-3-Clause */
/* What frameworks left to say which checkpoint is their latest: hints, each of which is looked at
 * for what it is. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "dcp/checkpoint.h"
#include "run/run_list.h"

/* The tensor "step" of a file of torch.save. Whatever is wrong with it, the mark says nothing. */
static dcp_status read_torch_step(const struct run_place *place, const char *path, int64_t *step,
                                  bool *found)
{
    dcp_checkpoint *checkpoint;
    dcp_entry entry;
    size_t index;
    const dcp_open_options options = {.storage = place->storage};
    *found = false;
    char *id = run_place_id(place, path);
    if (!id)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = dcp_checkpoint_open(id, &options, &checkpoint);
    memory_release(id);
    if (status != DCP_OK)
        return status;
    const dcp_tensor tensor = {.dtype = DCP_I64, .data = step};
    status = dcp_checkpoint_find(checkpoint, "step", &index);
    if (status == DCP_OK)
        status = dcp_checkpoint_entry(checkpoint, index, &entry);
    if (status == DCP_OK && entry.is_tensor && entry.dtype == DCP_I64 && entry.ndim == 0) {
        status = dcp_checkpoint_read_tensor(checkpoint, index, &tensor, NULL);
        *found = status == DCP_OK;
    }
    dcp_checkpoint_close(checkpoint);
    return status;
}

/* A line of text; *found is false for anything else. */
static dcp_status read_line(const struct run_place *place, const char *path,
                            char text[RUN_LINK_MAX], bool *found)
{
    struct buffer bytes;
    buffer_init(&bytes, 0);
    dcp_status status = run_place_read(place, path, RUN_LINK_MAX - 1, &bytes, found);
    size_t size = bytes.size;
    while (size > 0 && strchr(" \r\n", bytes.data[size - 1]) && bytes.data[size - 1])
        size--;
    *found = *found && size > 0;
    for (size_t i = 0; i < size && *found; i++)
        *found = bytes.data[i] >= 0x20;
    if (*found)
        memcpy(text, bytes.data, size);
    text[*found ? size : 0] = '\0';
    buffer_free(&bytes);
    return status;
}

/* *is_mark: it is one, whose text is empty if it cannot be read. */
static dcp_status read_mark(const struct run_place *place, const char *path,
                            enum run_mark_kind kind, char text[RUN_LINK_MAX], bool *is_mark)
{
    int64_t step = 0;
    bool found;
    text[0] = '\0';
    *is_mark = true;
    if (kind == RUN_MARK_TORCH) {
        dcp_status status = read_torch_step(place, path, &step, &found);
        if (found)
            snprintf(text, RUN_LINK_MAX, "%" PRId64, step);
        return run_place_gives_up(status) ? status : DCP_OK;
    }
    if (run_place_is_link(place, path, text))
        return DCP_OK;
    dcp_status status = read_line(place, path, text, &found);
    /* A file of that name that is no text is something else: a copy of the checkpoint. */
    *is_mark = found || kind == RUN_MARK_STEP;
    return status;
}

static dcp_status add_mark(dcp_run_list *list, const char *path, const char *folder,
                           const struct run_mark_layout *layout, const char *text)
{
    if (list->mark_count == list->mark_capacity) {
        size_t capacity = list->mark_capacity ? 2 * list->mark_capacity : 8;
        struct run_mark *grown =
            memory_reallocate_array(list->marks, capacity, sizeof *list->marks);
        if (!grown)
            return error_no_memory(capacity * sizeof *grown, "marks of a run");
        list->marks = grown;
        list->mark_capacity = capacity;
    }
    const char *copy = run_list_text(list, text);
    if (!copy)
        return DCP_ERR_NO_MEMORY;
    list->marks[list->mark_count++] =
        (struct run_mark){.path = path, .folder = folder, .text = copy, .layout = layout};
    return DCP_OK;
}

dcp_status run_mark_find(dcp_run_list *list, const struct run_place *place, const char *folder,
                         const struct run_names *names)
{
    char text[RUN_LINK_MAX];
    for (size_t i = 0; i < run_mark_layout_count; i++) {
        const struct run_mark_layout *layout = &run_mark_layouts[i];
        bool is_mark;
        if (!run_names_has(names, layout->name))
            continue;
        const char *path = run_list_path(list, folder, layout->name);
        if (!path)
            return DCP_ERR_NO_MEMORY;
        RETURN_IF_ERROR(read_mark(place, path, layout->kind, text, &is_mark));
        if (is_mark)
            RETURN_IF_ERROR(add_mark(list, path, folder, layout, text));
    }
    return DCP_OK;
}

/* ---- what they name ---- */

static bool find_step(const dcp_run_list *list, const struct run_mark *mark, size_t *index)
{
    struct run_numbers numbers;
    if (!run_name_match("#", mark->text, &numbers))
        return false;
    for (size_t i = 0; i < list->count; i++) {
        const struct run_entry *entry = &list->entries[i];
        if (strcmp(entry->folder, mark->folder) == 0 && entry->numbers.has_step &&
            entry->numbers.step == numbers.step && entry->kind != DCP_RUN_LINK) {
            *index = i;
            return true;
        }
    }
    return false;
}

/* The last part of a path names it; a path that leads elsewhere does not, but for those of object
 * stores, which begin where nobody can see. */
static bool find_name(const dcp_run_list *list, const struct run_place *place,
                      const struct run_mark *mark, size_t *index)
{
    char text[RUN_LINK_MAX];
    size_t length = strlen(mark->text);
    memcpy(text, mark->text, length + 1);
    while (length > 1 && text[length - 1] == '/')
        text[--length] = '\0';
    const char *slash = strrchr(text, '/');
    *index = run_list_find(list, mark->folder, slash ? slash + 1 : text);
    if (*index == SIZE_MAX)
        return false;
    return !slash || mark->layout->kind == RUN_MARK_PATH || (slash == text + 1 && *text == '.') ||
           run_place_is_same(place, mark->path, list->entries[*index].path);
}

void run_mark_resolve(dcp_run_list *list, const struct run_place *place)
{
    for (size_t m = 0; m < list->mark_count; m++) {
        struct run_mark *mark = &list->marks[m];
        enum run_mark_kind kind = mark->layout->kind;
        size_t index = 0;
        mark->found =
            (kind == RUN_MARK_STEP || kind == RUN_MARK_TORCH) && find_step(list, mark, &index);
        if (!mark->found && kind != RUN_MARK_TORCH && *mark->text)
            mark->found = find_name(list, place, mark, &index);
        if (!mark->found)
            continue;
        mark->checkpoint = index;
        list->entries[index].marked = true;
    }
    for (size_t i = 0; i < list->count; i++) {
        struct run_entry *entry = &list->entries[i];
        if (!entry->layout->marks_itself)
            continue;
        size_t target = entry->target ? run_list_find(list, entry->folder, entry->target) : i;
        entry->marked = true;
        if (target != SIZE_MAX)
            list->entries[target].marked = true;
    }
}
