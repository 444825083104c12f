/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/load/load_intersect.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"

/* With fewer comparisons than this, sorting is slower. */
enum { COMPARISONS_UNSORTED = 4096 };

struct box piece_box(const struct metadata_entry *entry, uint32_t piece)
{
    return (struct box){entry->ndim, entry->pieces[piece].offsets, entry->pieces[piece].sizes};
}

/* The dimension in which pieces are the smallest part of the tensor, on average. */
static int32_t choose_dimension(const struct metadata_entry *entry)
{
    int32_t best = 0;
    double smallest = 2;
    for (int32_t dim = 0; dim < entry->ndim; dim++) {
        double sum = 0;
        for (size_t i = 0; i < entry->piece_count; i++)
            sum += (double)entry->pieces[i].sizes[dim];
        double part = sum / (double)entry->piece_count / (double)(entry->global_shape[dim] + 1);
        if (part < smallest) {
            smallest = part;
            best = dim;
        }
    }
    return best;
}

static int compare_starts(const void *left, const void *right, void *context)
{
    const struct piece_index *index = context;
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    int64_t start_a = index->entry->pieces[a].offsets[index->dim];
    int64_t start_b = index->entry->pieces[b].offsets[index->dim];
    if (start_a != start_b)
        return start_a < start_b ? -1 : 1;
    return a < b ? -1 : a > b;
}

dcp_status piece_index_init(struct piece_index *index, const struct metadata_entry *entry,
                            size_t lookups)
{
    size_t count = entry->piece_count;
    *index = (struct piece_index){.entry = entry};
    if (entry->ndim == 0 || lookups < 2 || count < COMPARISONS_UNSORTED / lookups)
        return DCP_OK;
    index->dim = choose_dimension(entry);
    index->order = memory_allocate_array(count, sizeof *index->order);
    index->reach = memory_allocate_array(count, sizeof *index->reach);
    if (index->order == NULL || index->reach == NULL) {
        piece_index_free(index);
        return error_no_memory(count * sizeof *index->reach, "an index of stored pieces");
    }
    for (size_t i = 0; i < count; i++)
        index->order[i] = (uint32_t)i;
    qsort_r(index->order, count, sizeof *index->order, compare_starts, index);
    int64_t reach = 0;
    for (size_t i = 0; i < count; i++) {
        const struct metadata_piece *piece = &entry->pieces[index->order[i]];
        int64_t end = piece->offsets[index->dim] + piece->sizes[index->dim];
        reach = end > reach ? end : reach;
        index->reach[i] = reach;
    }
    return DCP_OK;
}

uint32_t piece_index_at(const struct piece_index *index, size_t place)
{
    return index->order != NULL ? index->order[place] : (uint32_t)place;
}

void piece_index_find(const struct piece_index *index, struct box box, size_t *first, size_t *end)
{
    const struct metadata_entry *entry = index->entry;
    *first = 0;
    *end = entry->piece_count;
    if (index->order == NULL)
        return;
    int64_t box_start = box.offsets[index->dim];
    int64_t box_end = box_start + box.sizes[index->dim];
    size_t low = 0, high = entry->piece_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (index->reach[middle] <= box_start)
            low = middle + 1;
        else
            high = middle;
    }
    *first = low;
    high = entry->piece_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (entry->pieces[index->order[middle]].offsets[index->dim] < box_end)
            low = middle + 1;
        else
            high = middle;
    }
    *end = low;
}

void piece_index_free(struct piece_index *index)
{
    memory_release(index->reach);
    memory_release(index->order);
    *index = (struct piece_index){0};
}
