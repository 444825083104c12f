/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/load/load_report.h"

#include <string.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"

struct dcp_load_report {
    dcp_report_line *lines;
    size_t count;
    uint64_t bytes_checked;
    uint64_t bytes_unchecked;
    struct arena arena;
};

static dcp_status copy_lines(const struct load_differences *differences, dcp_load_report *report)
{
    report->lines = arena_allocate_array(&report->arena, differences->count, sizeof *report->lines);
    if (!report->lines)
        return error_no_memory(differences->count * sizeof *report->lines, "load report");
    for (size_t i = 0; i < differences->count; i++) {
        const struct load_difference *line = &differences->lines[i];
        dcp_report_line *copy = &report->lines[i];
        copy->difference = line->difference;
        copy->name = arena_copy_text(&report->arena, line->name, strlen(line->name));
        copy->detail = arena_copy_text(&report->arena, line->detail, strlen(line->detail));
        copy->stored_name = copy->name;
        if (strcmp(line->stored_name, line->name) != 0)
            copy->stored_name =
                arena_copy_text(&report->arena, line->stored_name, strlen(line->stored_name));
        if (!copy->name || !copy->detail || !copy->stored_name)
            return error_no_memory(strlen(line->name) + strlen(line->detail), "load report");
    }
    report->count = differences->count;
    return DCP_OK;
}

dcp_status load_report_new(const struct load_differences *differences, dcp_load_report **report)
{
    dcp_load_report *made = memory_allocate_zeroed(1, sizeof *made);
    if (!made)
        return error_no_memory(sizeof *made, "load report");
    arena_init(&made->arena, 0);
    dcp_status status = copy_lines(differences, made);
    if (status == DCP_OK)
        *report = made;
    else
        dcp_load_report_free(made);
    return status;
}

void load_report_note(dcp_load_report *report, uint64_t checked, uint64_t unchecked)
{
    if (!report)
        return;
    report->bytes_checked = checked;
    report->bytes_unchecked = unchecked;
}

uint64_t dcp_load_report_bytes_checked(const dcp_load_report *report)
{
    return report ? report->bytes_checked : 0;
}

uint64_t dcp_load_report_bytes_unchecked(const dcp_load_report *report)
{
    return report ? report->bytes_unchecked : 0;
}

size_t dcp_load_report_count(const dcp_load_report *report)
{
    return report ? report->count : 0;
}

dcp_status dcp_load_report_line_sized(const dcp_load_report *report, size_t index,
                                      dcp_report_line *line, size_t line_size)
{
    if (!report || !line)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the %s is NULL", report ? "line" : "report");
    if (index >= report->count)
        return dcp_error_set(DCP_ERR_ARGUMENT, "there is no line %zu: the report has %zu lines",
                             index, report->count);
    sized_write(line, line_size, &report->lines[index], sizeof *report->lines);
    return DCP_OK;
}

void dcp_load_report_free(dcp_load_report *report)
{
    if (!report)
        return;
    arena_free(&report->arena);
    memory_release(report);
}
