/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/metadata.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

/* Long enough for a box of a few dimensions; longer ones are cut. */
#define BOX_TEXT_MAX 160

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

dcp_status metadata_index(struct metadata *metadata)
{
    for (size_t i = 0; i < metadata->count; i++) {
        const char *name = metadata->entries[i].name;
        uint64_t value = i;
        bool existing;
        RETURN_IF_ERROR(name_table_add(&metadata->by_name, name, strlen(name), &value, &existing));
        if (existing)
            return dcp_error_set(DCP_ERR_DUPLICATE,
                                 "the name \"%s\" is entry %" PRIu64 " and entry %zu", name, value,
                                 i);
    }
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

/* For disjoint boxes inside the shape. */
static dcp_status check_coverage(const struct metadata_entry *entry, const struct box *boxes)
{
    struct box whole = box_whole(entry->ndim, entry->global_shape);
    int64_t missing = box_volume(whole);
    for (size_t i = 0; i < entry->piece_count; i++)
        missing -= box_volume(boxes[i]);
    if (missing == 0)
        return DCP_OK;
    bool found;
    struct box_storage hole;
    char text[BOX_TEXT_MAX];
    RETURN_IF_ERROR(box_find_hole(whole, boxes, entry->piece_count, &found, &hole));
    if (!found)
        return dcp_error_set(DCP_ERR_INTERNAL, "\"%s\": no hole where %" PRId64 " elements miss",
                             entry->name, missing);
    return dcp_error_set(
        DCP_ERR_COVERAGE, "\"%s\": no chunk holds %s; %" PRId64 " elements are missing in all",
        entry->name, box_format(box_of(entry->ndim, &hole), text, sizeof text), missing);
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
        status = check_coverage(entry, boxes);
    memory_release(boxes);
    return status;
}
