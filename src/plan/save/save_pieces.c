/* SPDX-License-Identifier: BSD-3-Clause */
/* Equal boxes of several ranks are replicas of one chunk. The chunks of a tensor must lie inside of
 * it, must not overlap, and must cover it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "plan/save/save_merge.h"

enum { BOX_TEXT = 256 };

static int compare_numbers(int32_t count, const int64_t *a, const int64_t *b)
{
    for (int32_t i = 0; i < count; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

static int compare_held(const void *left, const void *right, void *context)
{
    const struct held_item *a = left, *b = right;
    int32_t ndim = *(const int32_t *)context;
    int order = compare_numbers(ndim, a->offsets, b->offsets);
    if (order == 0)
        order = compare_numbers(ndim, a->sizes, b->sizes);
    if (order == 0 && a->rank != b->rank)
        order = a->rank < b->rank ? -1 : 1;
    if (order == 0 && a->index != b->index)
        order = a->index < b->index ? -1 : 1;
    return order;
}

/* Ranks are often in the order of their boxes. */
static void sort_held(struct held_item *held, size_t count, int32_t ndim)
{
    size_t i = 1;
    while (i < count && compare_held(&held[i - 1], &held[i], &ndim) <= 0)
        i++;
    if (i < count)
        qsort_r(held, count, sizeof *held, compare_held, &ndim);
}

static struct box held_box(const struct merge_entry *entry, const struct held_item *held)
{
    return (struct box){entry->joint->ndim, held->offsets, held->sizes};
}

static dcp_status refuse_overlap(const struct merge_entry *entry, const struct held_item *a,
                                 const struct held_item *b)
{
    char first[BOX_TEXT], second[BOX_TEXT];
    box_format(held_box(entry, a), first, sizeof first);
    box_format(held_box(entry, b), second, sizeof second);
    return dcp_error_set(DCP_ERR_OVERLAP,
                         "\"%s\": chunk %s of rank %u overlaps chunk %s of rank %u",
                         entry->joint->name, first, a->rank, second, b->rank);
}

static dcp_status refuse_place(const struct merge_entry *entry, const struct held_item *held)
{
    char offsets[BOX_TEXT], sizes[BOX_TEXT], shape[BOX_TEXT];
    int32_t ndim = entry->joint->ndim;
    shape_format(ndim, held->offsets, offsets, sizeof offsets);
    shape_format(ndim, held->sizes, sizes, sizeof sizes);
    shape_format(ndim, entry->joint->global_shape, shape, sizeof shape);
    return dcp_error_set(DCP_ERR_SHAPE,
                         "\"%s\": chunk at %s of sizes %s of rank %u is not inside the shape %s",
                         entry->joint->name, offsets, sizes, held->rank, shape);
}

/* Checks all boxes, and drops those without elements. */
static dcp_status check_boxes(struct merge_entry *entry)
{
    size_t kept = 0;
    for (size_t i = 0; i < entry->held_count; i++) {
        struct box box = held_box(entry, &entry->held[i]);
        if (!box_check(box, entry->joint->global_shape))
            return refuse_place(entry, &entry->held[i]);
        if (box_volume(box) != 0)
            entry->held[kept++] = entry->held[i];
    }
    entry->held_count = kept;
    return DCP_OK;
}

static struct merge_piece *add_piece(struct merge *merge, const struct merge_entry *entry,
                                     size_t first, size_t count)
{
    struct merge_piece *piece = &merge->pieces[merge->piece_count++];
    *piece = (struct merge_piece){.offsets = entry->held[first].offsets,
                                  .sizes = entry->held[first].sizes,
                                  .holders = &entry->held[first],
                                  .holder_count = (uint32_t)count,
                                  .entry = (uint32_t)(entry - merge->entries)};
    return piece;
}

/* Each distinct box, in the order of their offsets. */
static dcp_status add_pieces(struct merge *merge, const struct merge_entry *entry)
{
    const struct held_item *held = entry->held;
    size_t first = 0;
    while (first < entry->held_count) {
        size_t end = first + 1;
        while (end < entry->held_count &&
               box_equal(held_box(entry, &held[first]), held_box(entry, &held[end]))) {
            if (held[end].rank == held[end - 1].rank || merge->options.settled)
                return refuse_overlap(entry, &held[end - 1], &held[end]);
            end++;
        }
        add_piece(merge, entry, first, end - first);
        first = end;
    }
    return DCP_OK;
}

/* Whether boxes, in order, are adjacent slices of the whole in one dimension: the common case,
 * which needs no search. */
static bool boxes_are_stacked(struct box whole, const struct box *boxes, size_t count)
{
    int32_t stacked = 0;
    int64_t end = 0;
    while (stacked < whole.ndim - 1 && boxes[0].sizes[stacked] == whole.sizes[stacked])
        stacked++;
    if (whole.ndim == 0)
        return count == 1;
    for (size_t i = 0; i < count; i++) {
        for (int32_t dim = 0; dim < whole.ndim; dim++)
            if (dim != stacked && boxes[i].sizes[dim] != whole.sizes[dim])
                return false;
        if (boxes[i].offsets[stacked] != end)
            return false;
        end += boxes[i].sizes[stacked];
    }
    return end == whole.sizes[stacked];
}

/* Checks that the pieces from `first` on are disjoint and cover the tensor. boxes: scratch. */
static dcp_status check_pieces(const struct merge *merge, const struct merge_entry *entry,
                               size_t first, int64_t elements, struct box *boxes)
{
    const struct merge_piece *pieces = &merge->pieces[first];
    struct box whole = box_whole(entry->joint->ndim, entry->joint->global_shape);
    size_t count = merge->piece_count - first;
    bool found;
    size_t a, b;
    for (size_t i = 0; i < count; i++)
        boxes[i] = merge_box(merge, &pieces[i]);
    if (count > 0 && boxes_are_stacked(whole, boxes, count))
        return DCP_OK;
    RETURN_IF_ERROR(box_find_overlap(boxes, count, &found, &a, &b));
    if (found)
        return refuse_overlap(entry, pieces[a].holders, pieces[b].holders);
    for (size_t i = 0; i < count; i++)
        elements -= box_volume(boxes[i]);
    if (elements == 0 || merge->options.allow_partial)
        return DCP_OK;
    struct box_storage hole;
    RETURN_IF_ERROR(box_find_hole(whole, boxes, count, &found, &hole));
    char box[BOX_TEXT], shape[BOX_TEXT];
    box_format(box_of(whole.ndim, &hole), box, sizeof box);
    shape_format(whole.ndim, whole.sizes, shape, sizeof shape);
    return dcp_error_set(DCP_ERR_COVERAGE,
                         "\"%s\": no rank holds %s of the shape %s: the group has %" PRIu32
                         " rank%s, which must hold all of it together, unless "
                         "options.allow_partial is set",
                         entry->joint->name, box, shape, merge->rank_count,
                         merge->rank_count == 1 ? "" : "s");
}

/* A tensor without elements is one piece, which any rank with a chunk of it can write. */
static dcp_status add_empty_piece(struct merge *merge, const struct merge_entry *entry)
{
    size_t ndim = (size_t)entry->joint->ndim;
    int64_t *numbers = arena_allocate_array(&merge->metadata->arena, 2 * ndim, sizeof *numbers);
    if (numbers == NULL)
        return error_no_memory(2 * ndim * sizeof *numbers, "the box of a tensor without elements");
    memset(numbers, 0, ndim * sizeof *numbers);
    memcpy(numbers + ndim, entry->joint->global_shape, ndim * sizeof *numbers);
    struct held_item *held = entry->held;
    size_t count = 1;
    for (size_t i = 1; i < entry->held_count; i++)
        if (held[i].rank != held[count - 1].rank)
            held[count++] = held[i];
    if (count > 1 && merge->options.settled)
        return dcp_error_set(DCP_ERR_DUPLICATE, "\"%s\": rank %u and rank %u would both write it",
                             entry->joint->name, held[0].rank, held[1].rank);
    struct merge_piece *piece = add_piece(merge, entry, 0, count);
    piece->offsets = numbers;
    piece->sizes = numbers + ndim;
    piece->is_part = true;
    return DCP_OK;
}

static dcp_status find_tensor(struct merge *merge, struct merge_entry *entry, struct box *boxes)
{
    int64_t elements;
    size_t first = merge->piece_count;
    if (!shape_volume(entry->joint->ndim, entry->joint->global_shape, &elements))
        return dcp_error_set(DCP_ERR_SHAPE, "\"%s\": its size in bytes overflows",
                             entry->joint->name);
    if (elements == 0) {
        RETURN_IF_ERROR(add_empty_piece(merge, entry));
    } else {
        RETURN_IF_ERROR(check_boxes(entry));
        sort_held(entry->held, entry->held_count, entry->joint->ndim);
        RETURN_IF_ERROR(add_pieces(merge, entry));
        RETURN_IF_ERROR(check_pieces(merge, entry, first, elements, boxes));
    }
    for (size_t i = first; i < merge->piece_count; i++)
        RETURN_IF_ERROR(merge_stream_layout(merge, &merge->pieces[i]));
    return DCP_OK;
}

static dcp_status find_object(struct merge *merge, const struct merge_entry *entry)
{
    struct merge_piece *piece = add_piece(merge, entry, 0, 1);
    piece->length = entry->joint->object_length;
    if (merge->options.objects_may_grow && piece->length <= INT64_MAX / 2)
        piece->length += piece->length / 8 + SAVE_OBJECT_ROOM;
    return merge_count_length(merge, piece);
}

dcp_status merge_find_pieces(struct merge *merge)
{
    size_t most = 0;
    for (size_t i = 0; i < merge->entry_count; i++)
        if (merge->entries[i].held_count > most)
            most = merge->entries[i].held_count;
    merge->pieces = memory_allocate_array(merge->item_count, sizeof *merge->pieces);
    struct box *boxes = memory_allocate_array(most, sizeof *boxes);
    dcp_status status = DCP_OK;
    if (merge->pieces == NULL || boxes == NULL)
        status = error_no_memory(merge->item_count * sizeof *merge->pieces, "pieces of all ranks");
    for (size_t i = 0; i < merge->entry_count && status == DCP_OK; i++) {
        struct merge_entry *entry = &merge->entries[i];
        status =
            entry->joint->is_tensor ? find_tensor(merge, entry, boxes) : find_object(merge, entry);
    }
    memory_release(boxes);
    return status;
}
