/* SPDX-License-Identifier: BSD-3-Clause */
/* Which checkpoint is the latest whole one, and the line that says why. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "run/run_list.h"

/* ---- order ---- */

static int compare_numbers(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

int64_t run_entry_step(const struct run_entry *entry)
{
    return entry->numbers.has_step ? entry->numbers.step + entry->layout->first_step : -1;
}

/* By epoch where the layout has one, whether it was evaluated, step and version; persistent ones
 * before others of the same step. 0: of the same age, as far as names tell. */
static int compare_age(const struct run_entry *a, const struct run_entry *b)
{
    int order = compare_numbers(a->numbers.has_step, b->numbers.has_step);
    if (order == 0)
        order = compare_numbers(a->numbers.epoch, b->numbers.epoch);
    if (order == 0)
        order = compare_numbers(a->numbers.evaluated, b->numbers.evaluated);
    if (order == 0)
        order = compare_numbers(run_entry_step(a), run_entry_step(b));
    if (order == 0)
        order = compare_numbers(a->numbers.version, b->numbers.version);
    return order ? order : compare_numbers(a->inner, b->inner);
}

/* By the table's order; rows of runs of ours come before it. */
static int64_t layout_order(const struct run_layout *layout)
{
    for (size_t i = 0; i < run_layout_count; i++)
        if (layout == &run_layouts[i])
            return (int64_t)i;
    return -1;
}

/* Of the same age, the layout that comes first in the table is the newer one. */
static int compare_entries(const void *first, const void *second)
{
    const struct run_entry *a = first, *b = second;
    int order = compare_age(a, b);
    if (order == 0)
        order = compare_numbers(layout_order(b->layout), layout_order(a->layout));
    return order ? order : strcmp(a->path, b->path);
}

void run_sort(dcp_run_list *list)
{
    if (list->count > 1)
        qsort(list->entries, list->count, sizeof *list->entries, compare_entries);
}

/* ---- finding ---- */

bool run_is_candidate(const struct run_entry *entry)
{
    return entry->kind != DCP_RUN_LINK && !entry->layout->never_latest;
}

bool run_entry_is_copy(const struct run_entry *entry)
{
    return entry->has_saved_step && entry->saved_step != run_entry_step(entry);
}

dcp_status run_latest_twin(dcp_run_list *list, const struct run_place *place, size_t index,
                           size_t *twin)
{
    const struct run_entry *entry = &list->entries[index];
    *twin = SIZE_MAX;
    for (size_t i = index; i-- > 0 && compare_age(&list->entries[i], entry) == 0;) {
        const struct run_entry *other = &list->entries[i];
        if (!run_is_candidate(other) || other->layout != entry->layout ||
            entry->layout->free_names || strcmp(other->folder, entry->folder) != 0)
            continue;
        RETURN_IF_ERROR(run_check(list, place, i));
        if (other->complete) {
            *twin = i;
            return DCP_OK;
        }
    }
    return DCP_OK;
}

/* *latest: SIZE_MAX if there is none. */
static dcp_status find_latest(dcp_run_list *list, const struct run_place *place, size_t *latest)
{
    *latest = SIZE_MAX;
    for (size_t i = list->count; i-- > 0;) {
        if (!run_is_candidate(&list->entries[i]))
            continue;
        RETURN_IF_ERROR(run_check(list, place, i));
        if (list->entries[i].complete && !run_entry_is_copy(&list->entries[i])) {
            *latest = i;
            return DCP_OK;
        }
    }
    return DCP_OK;
}

/* ---- the line ---- */

enum { REASONS_MAX = 3 };

/* Why newer ones are not it. */
static void explain_newer(const dcp_run_list *list, size_t first, struct buffer *line)
{
    size_t named = 0, unnamed = 0;
    for (size_t i = list->count; i-- > first;) {
        const struct run_entry *entry = &list->entries[i];
        bool is_copy = entry->complete && run_entry_is_copy(entry);
        if (!run_is_candidate(entry) || !entry->checked || (entry->complete && !is_copy))
            continue;
        if (named++ >= REASONS_MAX)
            unnamed++;
        else if (is_copy)
            buffer_append_format(line, "; %s is a copy of step %" PRId64, entry->path,
                                 entry->saved_step);
        else
            buffer_append_format(line, "; %s is not whole: %s", entry->path, entry->why);
    }
    if (unnamed > 0)
        buffer_append_format(line, "; nor are %zu more", unnamed);
}

static bool names_the_same(const struct run_mark *a, const struct run_mark *b)
{
    if (a->found && b->found)
        return a->checkpoint == b->checkpoint;
    return a->found == b->found && strcmp(a->text, b->text) == 0;
}

/* Marks of one folder. */
static bool disagree(const dcp_run_list *list)
{
    for (size_t i = 1; i < list->mark_count; i++)
        for (size_t j = 0; j < i; j++)
            if (strcmp(list->marks[i].folder, list->marks[j].folder) == 0 &&
                !names_the_same(&list->marks[i], &list->marks[j]))
                return true;
    return false;
}

static void explain_mark(const dcp_run_list *list, const struct run_mark *mark, size_t latest,
                         struct buffer *line)
{
    buffer_append_format(line, "; the mark %s ", mark->path);
    if (!*mark->text)
        buffer_append_format(line, "cannot be read");
    else if (!mark->found)
        buffer_append_format(line, "names %.200s, which is not there", mark->text);
    else if (mark->checkpoint == latest)
        buffer_append_format(line, "names it");
    else
        buffer_append_format(line, "names %s", list->entries[mark->checkpoint].path);
}

void run_latest_explain_marks(const dcp_run_list *list, size_t latest, struct buffer *line)
{
    for (size_t i = 0; i < list->mark_count; i++)
        explain_mark(list, &list->marks[i], latest, line);
    if (disagree(list))
        buffer_append_format(line, "; marks disagree: none was believed");
}

static dcp_status keep_line(dcp_run_list *list, struct buffer *line)
{
    buffer_append_u8(line, 0);
    dcp_status status = buffer_status(line);
    if (status == DCP_OK) {
        list->reason = run_list_text(list, (const char *)line->data);
        status = list->reason ? DCP_OK : DCP_ERR_NO_MEMORY;
    }
    buffer_free(line);
    return status;
}

static dcp_status decide(dcp_run_list *list, size_t latest, size_t twin)
{
    struct buffer line;
    const struct run_entry *entries = list->entries;
    buffer_init(&line, 0);
    list->latest = latest;
    if (list->folders[1]) {
        list->latest_status = DCP_ERR_DUPLICATE;
        buffer_append_format(&line,
                             "no latest: both %s and %s hold steps; name the one that is meant",
                             list->folders[0], list->folders[1]);
    } else if (latest == SIZE_MAX) {
        list->latest_status = DCP_ERR_NOT_FOUND;
        buffer_append_format(&line, list->count == 0 ? "no checkpoints are there"
                                                     : "no latest: none of the run is whole");
        explain_newer(list, 0, &line);
        run_latest_explain_marks(list, latest, &line);
    } else if (twin != SIZE_MAX) {
        list->latest_status = DCP_ERR_DUPLICATE;
        buffer_append_format(&line, "no latest: %s and %s are both step %" PRId64,
                             entries[twin].path, entries[latest].path,
                             run_entry_step(&entries[latest]));
    } else {
        list->entries[latest].latest = true;
        buffer_append_format(&line, "%s is the newest whole one", entries[latest].path);
        explain_newer(list, latest + 1, &line);
        run_latest_explain_marks(list, latest, &line);
    }
    return keep_line(list, &line);
}

dcp_status run_latest_find(dcp_run_list *list, const struct run_place *place, bool latest_only)
{
    size_t latest, twin = SIZE_MAX;
    for (size_t i = list->count; i-- > 0 && !latest_only;)
        RETURN_IF_ERROR(run_check(list, place, i));
    RETURN_IF_ERROR(find_latest(list, place, &latest));
    if (latest != SIZE_MAX)
        RETURN_IF_ERROR(run_latest_twin(list, place, latest, &twin));
    return decide(list, latest, twin);
}
