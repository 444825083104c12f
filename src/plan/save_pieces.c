/* SPDX-License-Identifier: BSD-3-Clause */
/* Equal boxes of several ranks are replicas of one chunk. The chunks of a tensor must lie inside of
 * it, must not overlap, and must cover it. */
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "plan/save_merge.h"

enum { BOX_TEXT = 256 };

static int compare_numbers(int32_t count, const int64_t *a, const int64_t *b)
{
    for (int32_t i = 0; i < count; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

static int compare_held(const void *left, const void *right)
{
    const struct held_item *a = left, *b = right;
    int order = compare_numbers(a->item->ndim, a->item->box.offsets, b->item->box.offsets);
    if (order == 0)
        order = compare_numbers(a->item->ndim, a->item->box.sizes, b->item->box.sizes);
    if (order == 0 && a->rank != b->rank)
        order = a->rank < b->rank ? -1 : 1;
    if (order == 0 && a->index != b->index)
        order = a->index < b->index ? -1 : 1;
    return order;
}

/* Ranks often come in the order of their boxes. */
static void sort_held(struct held_item *held, size_t count)
{
    size_t i = 1;
    while (i < count && compare_held(&held[i - 1], &held[i]) <= 0)
        i++;
    if (i < count)
        qsort(held, count, sizeof *held, compare_held);
}

static dcp_status refuse_overlap(const struct held_item *a, const struct held_item *b)
{
    char first[BOX_TEXT], second[BOX_TEXT];
    box_format(a->item->box, first, sizeof first);
    box_format(b->item->box, second, sizeof second);
    return dcp_error_set(DCP_ERR_OVERLAP, "\"%s\": %s of rank %u overlaps %s of rank %u",
                         a->item->name, first, a->rank, second, b->rank);
}

/* Drops boxes without elements, having checked all. */
static dcp_status check_boxes(struct merge_entry *entry)
{
    size_t kept = 0;
    for (size_t i = 0; i < entry->held_count; i++) {
        const struct write_item *item = entry->held[i].item;
        if (!box_check(item->box, entry->item->global_shape)) {
            char offsets[BOX_TEXT], sizes[BOX_TEXT], shape[BOX_TEXT];
            shape_format(item->ndim, item->box.offsets, offsets, sizeof offsets);
            shape_format(item->ndim, item->box.sizes, sizes, sizeof sizes);
            shape_format(item->ndim, item->global_shape, shape, sizeof shape);
            return dcp_error_set(
                DCP_ERR_SHAPE,
                "\"%s\": chunk at %s of sizes %s of rank %u is not inside the shape %s", item->name,
                offsets, sizes, entry->held[i].rank, shape);
        }
        if (box_volume(item->box) != 0)
            entry->held[kept++] = entry->held[i];
    }
    entry->held_count = kept;
    return DCP_OK;
}

static struct merge_piece *add_piece(struct merge *merge, const struct merge_entry *entry,
                                     size_t first, size_t count)
{
    struct merge_piece *piece = &merge->pieces[merge->piece_count++];
    *piece = (struct merge_piece){.offsets = entry->held[first].item->box.offsets,
                                  .sizes = entry->held[first].item->box.sizes,
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
        while (end < entry->held_count && box_equal(held[first].item->box, held[end].item->box)) {
            if (held[end].rank == held[end - 1].rank)
                return refuse_overlap(&held[end - 1], &held[end]);
            end++;
        }
        add_piece(merge, entry, first, end - first);
        first = end;
    }
    return DCP_OK;
}

/* Whether boxes, in order, are slices of the whole in one dimension that follow each other from end
 * to end: the common case, which needs no search. */
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

/* That the pieces from first on are disjoint and cover the tensor. boxes: scratch. */
static dcp_status check_pieces(const struct merge *merge, const struct merge_entry *entry,
                               size_t first, int64_t elements, struct box *boxes)
{
    const struct merge_piece *pieces = &merge->pieces[first];
    struct box whole = box_whole(entry->item->ndim, entry->item->global_shape);
    size_t count = merge->piece_count - first;
    bool found;
    size_t a, b;
    for (size_t i = 0; i < count; i++)
        boxes[i] = merge_box(merge, &pieces[i]);
    if (count > 0 && boxes_are_stacked(whole, boxes, count))
        return DCP_OK;
    RETURN_IF_ERROR(box_find_overlap(boxes, count, &found, &a, &b));
    if (found)
        return refuse_overlap(pieces[a].holders, pieces[b].holders);
    for (size_t i = 0; i < count; i++)
        elements -= box_volume(boxes[i]);
    if (elements == 0)
        return DCP_OK;
    struct box_storage hole;
    RETURN_IF_ERROR(box_find_hole(whole, boxes, count, &found, &hole));
    char box[BOX_TEXT], shape[BOX_TEXT];
    box_format(box_of(whole.ndim, &hole), box, sizeof box);
    shape_format(whole.ndim, whole.sizes, shape, sizeof shape);
    return dcp_error_set(DCP_ERR_COVERAGE, "\"%s\": no rank holds %s of the shape %s",
                         entry->item->name, box, shape);
}

/* A tensor without elements is one piece, which all that hold any of it could write. */
static void add_empty_piece(struct merge *merge, const struct merge_entry *entry)
{
    struct box whole = box_whole(entry->item->ndim, entry->item->global_shape);
    struct held_item *held = entry->held;
    size_t count = 1;
    for (size_t i = 1; i < entry->held_count; i++)
        if (held[i].rank != held[count - 1].rank)
            held[count++] = held[i];
    struct merge_piece *piece = add_piece(merge, entry, 0, count);
    piece->offsets = whole.offsets;
    piece->sizes = whole.sizes;
}

static dcp_status find_tensor(struct merge *merge, struct merge_entry *entry, struct box *boxes)
{
    int64_t elements;
    size_t first = merge->piece_count;
    if (!shape_volume(entry->item->ndim, entry->item->global_shape, &elements))
        return dcp_error_set(DCP_ERR_SHAPE, "\"%s\": a shape that is too large", entry->item->name);
    if (elements == 0) {
        add_empty_piece(merge, entry);
    } else {
        RETURN_IF_ERROR(check_boxes(entry));
        sort_held(entry->held, entry->held_count);
        RETURN_IF_ERROR(add_pieces(merge, entry));
        RETURN_IF_ERROR(check_pieces(merge, entry, first, elements, boxes));
    }
    for (size_t i = first; i < merge->piece_count; i++)
        RETURN_IF_ERROR(merge_stream_layout(merge, &merge->pieces[i]));
    return DCP_OK;
}

/* Objects of several ranks may differ; the lowest rank's is the one that is saved. */
static dcp_status find_object(struct merge *merge, const struct merge_entry *entry)
{
    for (size_t i = 1; i < entry->held_count; i++)
        if (entry->held[i].rank == entry->held[i - 1].rank)
            return dcp_error_set(DCP_ERR_DUPLICATE, "\"%s\": two objects on rank %u",
                                 entry->item->name, entry->held[i].rank);
    struct merge_piece *piece = add_piece(merge, entry, 0, 1);
    piece->length = entry->item->object_length;
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
            entry->item->is_tensor ? find_tensor(merge, entry, boxes) : find_object(merge, entry);
    }
    memory_release(boxes);
    return status;
}
