/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/metadata.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"

/* Long enough for a box of a few dimensions; longer ones are cut. */
#define BOX_TEXT_MAX 160
enum { HOLES_SHOWN = 3 };
_Static_assert(METADATA_MISSING_TEXT >= (HOLES_SHOWN * (BOX_TEXT_MAX + 2)) + 20, "all fit");

void metadata_init(struct metadata *metadata)
{
    *metadata = (struct metadata){.save_id = ""};
    arena_init(&metadata->arena, 0);
    name_table_init(&metadata->by_name);
}

void metadata_free(struct metadata *metadata)
{
    if (metadata->free_attachment)
        metadata->free_attachment(metadata->attachment);
    dcp_state_free(metadata->planner_root);
    name_table_free(&metadata->by_name);
    arena_free(&metadata->arena);
    metadata_init(metadata);
}

dcp_status metadata_index_entry(struct metadata *metadata, size_t index, size_t name_length)
{
    const char *name = metadata->entries[index].name;
    uint64_t value = index;
    bool existing;
    if (index == 0)
        RETURN_IF_ERROR(name_table_reserve(&metadata->by_name, metadata->count));
    RETURN_IF_ERROR(name_table_add(&metadata->by_name, name, name_length, &value, &existing));
    if (!existing)
        return DCP_OK;
    return dcp_error_set(DCP_ERR_DUPLICATE, "the name \"%s\" is entry %" PRIu64 " and entry %zu",
                         name, value, index);
}

dcp_status metadata_index(struct metadata *metadata)
{
    for (size_t i = 0; i < metadata->count; i++)
        RETURN_IF_ERROR(metadata_index_entry(metadata, i, strlen(metadata->entries[i].name)));
    return DCP_OK;
}

const struct metadata_entry *metadata_find(const struct metadata *metadata, const char *name)
{
    uint64_t index;
    if (!name_table_find(&metadata->by_name, name, strlen(name), &index))
        return NULL;
    return &metadata->entries[index];
}

const struct metadata_member *metadata_file_member(const struct metadata *metadata, uint32_t file)
{
    return metadata->member_count == 0 ? NULL : &metadata->members[metadata->file_members[file]];
}

static struct box piece_box(const struct metadata_entry *entry, size_t piece)
{
    return (struct box){entry->ndim, entry->pieces[piece].offsets, entry->pieces[piece].sizes};
}

static dcp_status check_shape(const struct metadata_entry *entry)
{
    uint64_t bytes;
    char text[BOX_TEXT_MAX];
    if (entry->ndim < 0 || entry->ndim > DCP_MAX_DIMS)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "\"%s\" has %" PRId32 " dimensions, at most %d are possible",
                             entry->name, entry->ndim, DCP_MAX_DIMS);
    if (dcp_dtype_size(entry->dtype) == 0)
        return dcp_error_set(DCP_ERR_FORMAT, "\"%s\" has no dtype (%d)", entry->name,
                             (int)entry->dtype);
    if (!shape_bytes(entry->ndim, entry->global_shape, entry->dtype, &bytes))
        return dcp_error_set(DCP_ERR_FORMAT, "\"%s\" has the impossible shape %s", entry->name,
                             shape_format(entry->ndim, entry->global_shape, text, sizeof text));
    return DCP_OK;
}

static dcp_status check_bounds(const struct metadata_entry *entry)
{
    char box_text[BOX_TEXT_MAX];
    char shape_text[BOX_TEXT_MAX];
    for (size_t i = 0; i < entry->piece_count; i++) {
        struct box box = piece_box(entry, i);
        if (box_check(box, entry->global_shape))
            continue;
        /* offset + size may overflow: show them apart */
        char sizes_text[BOX_TEXT_MAX];
        return dcp_error_set(
            DCP_ERR_FORMAT, "\"%s\": chunk %zu at %s of sizes %s is not inside the shape %s",
            entry->name, i, shape_format(entry->ndim, box.offsets, box_text, sizeof box_text),
            shape_format(entry->ndim, box.sizes, sizes_text, sizeof sizes_text),
            shape_format(entry->ndim, entry->global_shape, shape_text, sizeof shape_text));
    }
    return DCP_OK;
}

/* Whether the pieces are slabs of the tensor that follow each other, as those of most sharded
 * tensors do: then they cover it, and nothing needs sorting. For boxes inside the shape. */
static bool is_row_of_slabs(const struct metadata_entry *entry)
{
    if (entry->piece_count == 0)
        return false;
    int32_t dim = 0;
    while (dim < entry->ndim && entry->pieces[0].sizes[dim] == entry->global_shape[dim])
        dim++;
    if (dim == entry->ndim)
        return entry->piece_count == 1;
    int64_t next = 0;
    for (size_t i = 0; i < entry->piece_count; i++) {
        const struct metadata_piece *piece = &entry->pieces[i];
        for (int32_t d = 0; d < entry->ndim; d++)
            if (d != dim && piece->sizes[d] != entry->global_shape[d])
                return false;
        if (piece->offsets[dim] != next)
            return false;
        next += piece->sizes[dim];
    }
    return next == entry->global_shape[dim];
}

static dcp_status check_disjoint(const struct metadata_entry *entry, const struct box *boxes)
{
    bool found;
    size_t first;
    size_t second;
    char first_text[BOX_TEXT_MAX];
    char second_text[BOX_TEXT_MAX];
    RETURN_IF_ERROR(box_find_overlap(boxes, entry->piece_count, &found, &first, &second));
    if (!found)
        return DCP_OK;
    return dcp_error_set(DCP_ERR_OVERLAP, "\"%s\": chunks %zu %s and %zu %s overlap", entry->name,
                         first, box_format(boxes[first], first_text, sizeof first_text), second,
                         box_format(boxes[second], second_text, sizeof second_text));
}

int64_t metadata_count_missing(const struct metadata_entry *entry)
{
    int64_t missing = box_volume(box_whole(entry->ndim, entry->global_shape));
    for (size_t i = 0; i < entry->piece_count; i++)
        missing -= box_volume(piece_box(entry, i));
    return missing;
}

struct metadata_missing metadata_sum_missing(const struct metadata *metadata)
{
    struct metadata_missing sum = {0};
    for (size_t i = 0; i < metadata->count; i++) {
        const struct metadata_entry *entry = &metadata->entries[i];
        int64_t missing = entry->is_tensor ? metadata_count_missing(entry) : 0;
        sum.tensors += missing != 0;
        if (!checked_add_u64(sum.elements, (uint64_t)missing, &sum.elements))
            sum.elements = UINT64_MAX;
    }
    return sum;
}

static int compare_holes(const void *left, const void *right)
{
    const struct box *a = left, *b = right;
    for (int32_t dim = 0; dim < a->ndim; dim++)
        if (a->offsets[dim] != b->offsets[dim])
            return a->offsets[dim] < b->offsets[dim] ? -1 : 1;
    return 0;
}

/* In order; others: there are more. */
static void print_holes(struct box *holes, size_t count, bool others,
                        char text[METADATA_MISSING_TEXT])
{
    size_t length = 0;
    if (count > 1)
        qsort(holes, count, sizeof *holes, compare_holes);
    for (size_t i = 0; i < count; i++) {
        char box[BOX_TEXT_MAX];
        length += (size_t)snprintf(text + length, METADATA_MISSING_TEXT - length, "%s%s",
                                   i > 0 ? ", " : "", box_format(holes[i], box, sizeof box));
    }
    if (others)
        snprintf(text + length, METADATA_MISSING_TEXT - length, " and others");
}

/* boxes: the chunks', with room for the holes that are found. */
static dcp_status format_holes(const struct metadata_entry *entry, struct box *boxes,
                               char text[METADATA_MISSING_TEXT])
{
    struct box whole = box_whole(entry->ndim, entry->global_shape);
    struct box *holes = boxes + entry->piece_count;
    struct box_storage places[HOLES_SHOWN + 1];
    size_t count = 0;
    bool found = true;
    while (found && count <= HOLES_SHOWN) {
        RETURN_IF_ERROR(
            box_find_hole(whole, boxes, entry->piece_count + count, &found, &places[count]));
        if (found) {
            holes[count] = box_of(entry->ndim, &places[count]);
            count++;
        }
    }
    print_holes(holes, count > HOLES_SHOWN ? HOLES_SHOWN : count, count > HOLES_SHOWN, text);
    return DCP_OK;
}

dcp_status metadata_format_missing(const struct metadata_entry *entry,
                                   char text[METADATA_MISSING_TEXT])
{
    struct box *boxes = memory_allocate_array(entry->piece_count + HOLES_SHOWN + 1, sizeof *boxes);
    text[0] = '\0';
    if (!boxes)
        return error_no_memory((entry->piece_count + HOLES_SHOWN + 1) * sizeof *boxes, "boxes");
    for (size_t i = 0; i < entry->piece_count; i++)
        boxes[i] = piece_box(entry, i);
    dcp_status status = format_holes(entry, boxes, text);
    memory_release(boxes);
    return status;
}

/* For disjoint boxes inside the shape. */
static dcp_status check_coverage(const struct metadata_entry *entry)
{
    int64_t missing = metadata_count_missing(entry);
    char text[METADATA_MISSING_TEXT];
    if (missing == 0)
        return DCP_OK;
    RETURN_IF_ERROR(metadata_format_missing(entry, text));
    return dcp_error_set(DCP_ERR_COVERAGE,
                         "\"%s\": no chunk holds %s; %" PRId64 " elements are missing in all",
                         entry->name, text, missing);
}

dcp_status metadata_check_entry(const struct metadata_entry *entry)
{
    if (!entry->is_tensor) {
        if (entry->piece_count == 1)
            return DCP_OK;
        return dcp_error_set(DCP_ERR_FORMAT, "the object \"%s\" has %zu pieces, expected 1",
                             entry->name, entry->piece_count);
    }
    RETURN_IF_ERROR(check_shape(entry));
    RETURN_IF_ERROR(check_bounds(entry));
    if (is_row_of_slabs(entry))
        return DCP_OK;
    struct box *boxes = memory_allocate_array(entry->piece_count, sizeof *boxes);
    if (!boxes)
        return error_no_memory(entry->piece_count * sizeof *boxes, "boxes");
    for (size_t i = 0; i < entry->piece_count; i++)
        boxes[i] = piece_box(entry, i);
    dcp_status status = check_disjoint(entry, boxes);
    if (status == DCP_OK)
        status = check_coverage(entry);
    memory_release(boxes);
    return status;
}
