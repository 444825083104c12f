/* SPDX-License-Identifier: BSD-3-Clause */
/* Equal boxes of several ranks are replicas of one chunk. The chunks of a tensor must lie inside of
 * it, must not overlap, and must cover it. */
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "plan/save_merge.h"
#include "plan/wire.h"

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
            char box[BOX_TEXT], shape[BOX_TEXT];
            box_format(item->box, box, sizeof box);
            shape_format(item->ndim, item->global_shape, shape, sizeof shape);
            return dcp_error_set(DCP_ERR_SHAPE, "\"%s\": %s of rank %u is outside of the shape %s",
                                 item->name, box, entry->held[i].rank, shape);
        }
        if (box_volume(item->box) != 0)
            entry->held[kept++] = entry->held[i];
    }
    entry->held_count = kept;
    return DCP_OK;
}

static struct merge_chunk *add_chunk(struct merge *merge, const struct merge_entry *entry,
                                     size_t first, size_t count)
{
    struct merge_chunk *chunk = &merge->chunks[merge->chunk_count++];
    *chunk = (struct merge_chunk){.box = entry->held[first].item->box,
                                  .entry = (uint32_t)(entry - merge->entries),
                                  .holder_count = (uint32_t)count,
                                  .holders = &entry->held[first]};
    return chunk;
}

/* Each distinct box, in the order of their offsets. */
static dcp_status add_chunks(struct merge *merge, const struct merge_entry *entry)
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
        add_chunk(merge, entry, first, end - first);
        first = end;
    }
    return DCP_OK;
}

/* That the chunks from first on are disjoint and cover the tensor. boxes: scratch. */
static dcp_status check_chunks(const struct merge *merge, const struct merge_entry *entry,
                               size_t first, int64_t elements, struct box *boxes)
{
    const struct merge_chunk *chunks = &merge->chunks[first];
    size_t count = merge->chunk_count - first;
    bool found;
    size_t a, b;
    for (size_t i = 0; i < count; i++)
        boxes[i] = chunks[i].box;
    RETURN_IF_ERROR(box_find_overlap(boxes, count, &found, &a, &b));
    if (found)
        return refuse_overlap(chunks[a].holders, chunks[b].holders);
    for (size_t i = 0; i < count; i++)
        elements -= box_volume(boxes[i]);
    if (elements == 0)
        return DCP_OK;
    struct box_storage hole;
    struct box whole = box_whole(entry->item->ndim, entry->item->global_shape);
    RETURN_IF_ERROR(box_find_hole(whole, boxes, count, &found, &hole));
    char box[BOX_TEXT], shape[BOX_TEXT];
    box_format(box_of(whole.ndim, &hole), box, sizeof box);
    shape_format(whole.ndim, whole.sizes, shape, sizeof shape);
    return dcp_error_set(DCP_ERR_COVERAGE, "\"%s\": no rank holds %s of the shape %s",
                         entry->item->name, box, shape);
}

/* A tensor without elements is one chunk, which all that hold any of it could write. */
static void add_empty_chunk(struct merge *merge, const struct merge_entry *entry)
{
    struct held_item *held = entry->held;
    size_t count = 1;
    for (size_t i = 1; i < entry->held_count; i++)
        if (held[i].rank != held[count - 1].rank)
            held[count++] = held[i];
    add_chunk(merge, entry, 0, count)->box =
        box_whole(entry->item->ndim, entry->item->global_shape);
}

static dcp_status find_tensor_chunks(struct merge *merge, struct merge_entry *entry,
                                     struct box *boxes)
{
    int64_t elements;
    size_t first = merge->chunk_count;
    if (!shape_volume(entry->item->ndim, entry->item->global_shape, &elements))
        return dcp_error_set(DCP_ERR_SHAPE, "\"%s\": a shape that is too large", entry->item->name);
    if (elements == 0) {
        add_empty_chunk(merge, entry);
    } else {
        RETURN_IF_ERROR(check_boxes(entry));
        sort_held(entry->held, entry->held_count);
        RETURN_IF_ERROR(add_chunks(merge, entry));
        RETURN_IF_ERROR(check_chunks(merge, entry, first, elements, boxes));
    }
    for (size_t i = first; i < merge->chunk_count; i++) {
        struct merge_chunk *chunk = &merge->chunks[i];
        RETURN_IF_ERROR(
            merge_stream_layout(merge, entry, chunk->box, &chunk->data_offset, &chunk->length));
    }
    return DCP_OK;
}

/* Objects of several ranks may differ; the lowest rank's is the one that is saved. */
static dcp_status find_object(struct merge *merge, const struct merge_entry *entry)
{
    for (size_t i = 1; i < entry->held_count; i++)
        if (entry->held[i].rank == entry->held[i - 1].rank)
            return dcp_error_set(DCP_ERR_DUPLICATE, "\"%s\": two objects on rank %u",
                                 entry->item->name, entry->held[i].rank);
    add_chunk(merge, entry, 0, 1)->length = entry->item->object_length;
    return merge_count_length(merge, entry, entry->item->object_length);
}

dcp_status merge_find_chunks(struct merge *merge)
{
    size_t most = 0;
    for (size_t i = 0; i < merge->entry_count; i++)
        if (merge->entries[i].held_count > most)
            most = merge->entries[i].held_count;
    merge->chunks = memory_allocate_array(merge->item_count, sizeof *merge->chunks);
    struct box *boxes = memory_allocate_array(most, sizeof *boxes);
    dcp_status status = DCP_OK;
    if (merge->chunks == NULL || boxes == NULL)
        status = error_no_memory(merge->item_count * sizeof *merge->chunks, "chunks of all ranks");
    for (size_t i = 0; i < merge->entry_count && status == DCP_OK; i++) {
        struct merge_entry *entry = &merge->entries[i];
        status = entry->item->is_tensor ? find_tensor_chunks(merge, entry, boxes)
                                        : find_object(merge, entry);
    }
    memory_release(boxes);
    return status;
}
