/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/load_differences.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

enum { LINES_FIRST = 16 };

static size_t bitmap_size(size_t entry_count)
{
    return entry_count / 8 + (entry_count % 8 != 0);
}

dcp_status differences_init(struct load_differences *differences, size_t entry_count)
{
    *differences = (struct load_differences){0};
    arena_init(&differences->arena, 0);
    size_t size = bitmap_size(entry_count);
    differences->wanted = arena_allocate(&differences->arena, size);
    if (differences->wanted == NULL)
        return error_no_memory(size, "names wanted");
    memset(differences->wanted, 0, size);
    differences->entry_count = entry_count;
    return DCP_OK;
}

void differences_want(struct load_differences *differences, size_t entry)
{
    differences->wanted[entry / 8] |= (unsigned char)(1u << entry % 8);
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
    differences->count++;
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
    return order != 0 ? order : strcmp(a->detail, b->detail);
}

static dcp_status unite_wanted(const struct load_differences *ranks, int rank_count,
                               struct load_differences *merged)
{
    size_t size = bitmap_size(merged->entry_count);
    for (int rank = 0; rank < rank_count; rank++) {
        if (ranks[rank].entry_count != merged->entry_count)
            return dcp_error_set(DCP_ERR_FORMAT,
                                 "rank %d sees a checkpoint of %zu names, the coordinator of %zu",
                                 rank, ranks[rank].entry_count, merged->entry_count);
        for (size_t i = 0; i < size; i++)
            merged->wanted[i] |= ranks[rank].wanted[i];
        if (merged->failure == DCP_OK)
            merged->failure = ranks[rank].failure;
    }
    return DCP_OK;
}

/* All ranks' lines and one for each entry that nobody wants, sorted; count_all: how many. */
static struct load_difference *gather_lines(const struct load_differences *ranks, int rank_count,
                                            const struct metadata *metadata,
                                            const struct load_differences *merged,
                                            size_t *count_all)
{
    size_t capacity = metadata->count, count = 0;
    for (int rank = 0; rank < rank_count; rank++)
        capacity += ranks[rank].count;
    struct load_difference *lines = memory_allocate_array(capacity, sizeof *lines);
    if (lines == NULL) {
        error_no_memory(capacity * sizeof *lines, "differences of all ranks");
        return NULL;
    }
    for (int rank = 0; rank < rank_count; rank++)
        for (size_t i = 0; i < ranks[rank].count; i++)
            lines[count++] = ranks[rank].lines[i];
    for (size_t i = 0; i < metadata->count; i++)
        if (!differences_is_wanted(merged, i))
            lines[count++] =
                (struct load_difference){DCP_DIFFERENCE_UNEXPECTED, metadata->entries[i].name, ""};
    qsort(lines, count, sizeof *lines, compare_lines);
    *count_all = count;
    return lines;
}

dcp_status load_differences_merge(const struct load_differences *ranks, int rank_count,
                                  const struct metadata *metadata, struct load_differences *merged)
{
    RETURN_IF_ERROR(differences_init(merged, metadata->count));
    RETURN_IF_ERROR(unite_wanted(ranks, rank_count, merged));
    size_t count = 0;
    struct load_difference *lines = gather_lines(ranks, rank_count, metadata, merged, &count);
    dcp_status status = lines != NULL ? DCP_OK : DCP_ERR_NO_MEMORY;
    for (size_t i = 0; i < count && status == DCP_OK; i++)
        if (i == 0 || compare_lines(&lines[i - 1], &lines[i]) != 0)
            status =
                differences_add(merged, lines[i].difference, lines[i].name, strlen(lines[i].name),
                                lines[i].detail, strlen(lines[i].detail));
    memory_release(lines);
    return status;
}
