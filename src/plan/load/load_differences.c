/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/load/load_differences.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

enum { LINES_FIRST = 16 };

static size_t bitmap_size(size_t entry_count)
{
    return entry_count / 8 + (entry_count % 8 != 0);
}

dcp_status differences_init(struct load_differences *differences, size_t entry_count,
                            size_t used_count)
{
    *differences = (struct load_differences){0};
    arena_init(&differences->arena, 0);
    size_t size = bitmap_size(entry_count);
    differences->wanted = arena_allocate(&differences->arena, size);
    if (differences->wanted == NULL)
        return error_no_memory(size, "names wanted");
    memset(differences->wanted, 0, size);
    differences->entry_count = entry_count;
    differences->used = arena_allocate_array(&differences->arena, used_count, sizeof(bool));
    if (differences->used == NULL)
        return error_no_memory(used_count, "rules and patterns used");
    memset(differences->used, 0, used_count * sizeof(bool));
    differences->used_count = used_count;
    return DCP_OK;
}

void differences_want(struct load_differences *differences, size_t entry)
{
    differences->wanted[entry / 8] |= (unsigned char)(1u << entry % 8);
}

void load_differences_want(struct load_differences *differences, const struct metadata *metadata,
                           const char *stored_name)
{
    const struct metadata_entry *entry = metadata_find(metadata, stored_name);
    if (entry != NULL)
        differences_want(differences, (size_t)(entry - metadata->entries));
}

bool differences_is_wanted(const struct load_differences *differences, size_t entry)
{
    return (differences->wanted[entry / 8] >> entry % 8 & 1) != 0;
}

dcp_status differences_add(struct load_differences *differences, dcp_difference difference,
                           const char *name, size_t name_length, const char *detail,
                           size_t detail_length)
{
    if (differences->count == differences->capacity) {
        size_t capacity = differences->capacity != 0 ? differences->capacity * 2 : LINES_FIRST;
        struct load_difference *lines =
            memory_reallocate_array(differences->lines, capacity, sizeof *lines);
        if (lines == NULL)
            return error_no_memory(capacity * sizeof *lines, "differences of a load");
        differences->lines = lines;
        differences->capacity = capacity;
    }
    struct load_difference *line = &differences->lines[differences->count];
    line->difference = difference;
    line->name = arena_copy_text(&differences->arena, name, name_length);
    line->detail = arena_copy_text(&differences->arena, detail, detail_length);
    if (line->name == NULL || line->detail == NULL)
        return error_no_memory(name_length + detail_length, "differences of a load");
    line->stored_name = line->name;
    differences->count++;
    return DCP_OK;
}

dcp_status differences_set_stored(struct load_differences *differences, const char *stored_name,
                                  size_t length)
{
    struct load_difference *line = &differences->lines[differences->count - 1];
    const char *copy = arena_copy_text(&differences->arena, stored_name, length);
    if (copy == NULL)
        return error_no_memory(length, "differences of a load");
    line->stored_name = copy;
    return DCP_OK;
}

dcp_status differences_add_mismatch(struct load_differences *differences, dcp_status failure,
                                    const char *name, const char *detail)
{
    if (differences->failure == DCP_OK)
        differences->failure = failure;
    return differences_add(differences, DCP_DIFFERENCE_MISMATCHED, name, strlen(name), detail,
                           strlen(detail));
}

void load_differences_free(struct load_differences *differences)
{
    memory_release(differences->lines);
    arena_free(&differences->arena);
    *differences = (struct load_differences){0};
}

static int compare_lines(const void *left, const void *right)
{
    const struct load_difference *a = left, *b = right;
    if (a->difference != b->difference)
        return a->difference < b->difference ? -1 : 1;
    int order = strcmp(a->name, b->name);
    if (order == 0)
        order = strcmp(a->detail, b->detail);
    return order != 0 ? order : strcmp(a->stored_name, b->stored_name);
}

static dcp_status unite_marks(const struct load_differences *ranks, int rank_count,
                              struct load_differences *merged)
{
    size_t size = bitmap_size(merged->entry_count);
    for (int rank = 0; rank < rank_count; rank++) {
        if (ranks[rank].entry_count != merged->entry_count)
            return dcp_error_set(DCP_ERR_FORMAT,
                                 "rank %d finds %zu names in the checkpoint, but the coordinator "
                                 "finds %zu: all ranks must load the same checkpoint",
                                 rank, ranks[rank].entry_count, merged->entry_count);
        if (ranks[rank].used_count != merged->used_count)
            return dcp_error_set(DCP_ERR_FORMAT,
                                 "rank %d has %zu renaming rules and patterns, but the coordinator "
                                 "has %zu: all ranks must pass the same options",
                                 rank, ranks[rank].used_count, merged->used_count);
        for (size_t i = 0; i < size; i++)
            merged->wanted[i] |= ranks[rank].wanted[i];
        for (size_t i = 0; i < merged->used_count; i++)
            merged->used[i] |= ranks[rank].used[i];
        if (merged->failure == DCP_OK)
            merged->failure = ranks[rank].failure;
    }
    return DCP_OK;
}

/* Whether no rank wants the entry, and no filter leaves it out. */
static bool is_unexpected(struct load_differences *merged, const struct metadata *metadata,
                          const struct load_names *names, size_t entry)
{
    if (differences_is_wanted(merged, entry))
        return false;
    return names == NULL || name_filter_passes(&names->filter, metadata->entries[entry].name,
                                               merged->used + names->rules.count);
}

/* A line, and the rank that it comes from. */
struct gathered_line {
    struct load_difference line;
    int rank;
};

static int compare_gathered(const void *left, const void *right)
{
    const struct gathered_line *a = left, *b = right;
    int order = compare_lines(&a->line, &b->line);
    return order != 0 ? order : (a->rank > b->rank) - (a->rank < b->rank);
}

/* All ranks' lines and one for each unexpected entry, sorted; count_all: how many. */
static struct gathered_line *gather_lines(const struct load_differences *ranks, int rank_count,
                                          const struct metadata *metadata,
                                          const struct load_names *names,
                                          struct load_differences *merged, size_t *count_all)
{
    size_t capacity = metadata->count, count = 0;
    for (int rank = 0; rank < rank_count; rank++)
        capacity += ranks[rank].count;
    struct gathered_line *lines = memory_allocate_array(capacity, sizeof *lines);
    if (lines == NULL) {
        error_no_memory(capacity * sizeof *lines, "differences of all ranks");
        return NULL;
    }
    for (int rank = 0; rank < rank_count; rank++)
        for (size_t i = 0; i < ranks[rank].count; i++)
            lines[count++] = (struct gathered_line){ranks[rank].lines[i], rank};
    for (size_t i = 0; i < metadata->count; i++)
        if (is_unexpected(merged, metadata, names, i)) {
            const char *name = metadata->entries[i].name;
            lines[count++].line =
                (struct load_difference){DCP_DIFFERENCE_UNEXPECTED, name, "", name};
        }
    qsort(lines, count, sizeof *lines, compare_gathered);
    *count_all = count;
    return lines;
}

static dcp_status copy_line(struct load_differences *merged, const struct load_difference *line)
{
    RETURN_IF_ERROR(differences_add(merged, line->difference, line->name, strlen(line->name),
                                    line->detail, strlen(line->detail)));
    if (strcmp(line->stored_name, line->name) == 0)
        return DCP_OK;
    return differences_set_stored(merged, line->stored_name, strlen(line->stored_name));
}

/* Merges equal lines of several ranks into one. A difference of only some ranks names them. */
static dcp_status add_merged(struct load_differences *merged, const struct gathered_line *lines,
                             size_t alike, int rank_count)
{
    struct load_difference line = lines->line;
    struct buffer detail;
    bool missing = line.difference == DCP_DIFFERENCE_MISSING;
    if ((!missing && line.difference != DCP_DIFFERENCE_MISMATCHED) || alike >= (size_t)rank_count)
        return copy_line(merged, &line);
    buffer_init(&detail, 0);
    buffer_append_format(&detail, "%s on rank %d", missing ? "wanted" : line.detail, lines->rank);
    if (alike > 1)
        buffer_append_format(&detail, " and %zu more", alike - 1);
    buffer_append_u8(&detail, 0);
    dcp_status status = buffer_status(&detail);
    line.detail = (const char *)detail.data;
    if (status == DCP_OK)
        status = copy_line(merged, &line);
    buffer_free(&detail);
    return status;
}

dcp_status load_differences_merge(const struct load_differences *ranks, int rank_count,
                                  const struct metadata *metadata, const struct load_names *names,
                                  struct load_differences *merged)
{
    RETURN_IF_ERROR(differences_init(merged, metadata->count, load_names_count(names)));
    RETURN_IF_ERROR(unite_marks(ranks, rank_count, merged));
    size_t count = 0;
    struct gathered_line *lines = gather_lines(ranks, rank_count, metadata, names, merged, &count);
    dcp_status status = lines != NULL ? DCP_OK : DCP_ERR_NO_MEMORY;
    for (size_t i = 0, next; i < count && status == DCP_OK; i = next) {
        next = i + 1;
        while (next < count && compare_lines(&lines[i].line, &lines[next].line) == 0)
            next++;
        status = add_merged(merged, &lines[i], next - i, rank_count);
    }
    memory_release(lines);
    size_t named = merged->count;
    if (status == DCP_OK)
        status = load_names_add_unused(names, metadata, merged);
    if (merged->count - named > 1)
        qsort(merged->lines + named, merged->count - named, sizeof *merged->lines, compare_lines);
    return status;
}
