/* SPDX-License-Identifier: BSD-3-Clause */
/* The message with what a rank wants from a load, for the coordinator. */
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "plan/load/load_intersect.h"
#include "plan/share/load_share.h"
#include "plan/wire.h"
#include "state/copy.h"

static const char message[] = "wanted regions of a load";

static bool can_be_shared(const struct metadata_entry *entry, uint32_t index, bool sees)
{
    const struct metadata_piece *piece = &entry->pieces[index];
    if (!entry->is_tensor)
        return piece->encoding == PIECE_STREAM && piece->length != 0 && piece->length <= INT64_MAX;
    return !sees || piece->encoding != PIECE_VIEW ||
           copy_is_dense(piece->view->ndim, piece->view->sizes, piece->view->strides);
}

struct box share_piece_box(const struct metadata_entry *entry, uint32_t piece)
{
    static const int64_t start[] = {0};
    if (entry->is_tensor)
        return piece_box(entry, piece);
    return (struct box){1, start, (const int64_t *)&entry->pieces[piece].length};
}

size_t share_element_size(const struct metadata_entry *entry)
{
    return entry->is_tensor ? dcp_dtype_size(entry->dtype) : 1;
}

static int compare_wants(const void *left, const void *right)
{
    const struct read_item *a = *(const struct read_item *const *)left;
    const struct read_item *b = *(const struct read_item *const *)right;
    if (a->entry != b->entry)
        return a->entry < b->entry ? -1 : 1;
    if (a->piece != b->piece)
        return a->piece < b->piece ? -1 : 1;
    return box_compare(a->region, b->region);
}

/* The items in order, each region once. */
static size_t sort_wants(const struct load_plan *plan, const struct metadata *metadata, bool sees,
                         const struct read_item **sorted)
{
    size_t count = 0, kept = 0;
    for (size_t i = 0; i < plan->count; i++)
        if (can_be_shared(&metadata->entries[plan->items[i].entry], plan->items[i].piece, sees))
            sorted[count++] = &plan->items[i];
    if (count > 1)
        qsort(sorted, count, sizeof *sorted, compare_wants);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || compare_wants(&sorted[i - 1], &sorted[i]) != 0)
            sorted[kept++] = sorted[i];
    return kept;
}

dcp_status share_wants_encode(const struct load_plan *plan, const struct metadata *metadata,
                              bool sees, struct buffer *out)
{
    const struct read_item **sorted = memory_allocate_array(plan->count, sizeof *sorted);
    if (sorted == NULL)
        return error_no_memory(plan->count * sizeof *sorted, message);
    size_t count = sort_wants(plan, metadata, sees, sorted);
    uint32_t before = 0;
    buffer_append_u8(out, WIRE_LOAD_WANTS);
    buffer_append_u8(out, sees);
    buffer_append_varint(out, count);
    for (size_t i = 0; i < count; i++) {
        const struct read_item *item = sorted[i];
        const struct metadata_entry *entry = &metadata->entries[item->entry];
        buffer_append_varint(out, item->entry - before);
        struct box outer = share_piece_box(entry, item->piece);
        buffer_append_varint(out, item->piece);
        wire_append_box(out, outer, entry->is_tensor ? item->region : outer);
        before = item->entry;
    }
    memory_release(sorted);
    return buffer_status(out);
}

static dcp_status decode_want(struct reader *reader, const struct metadata *metadata,
                              struct arena *arena, uint32_t before, bool sees,
                              struct share_want *want)
{
    uint32_t step = wire_u32(reader);
    want->piece = wire_u32(reader);
    if (reader->failed || step >= metadata->count - before)
        return wire_fault(reader, message, "an unknown name");
    want->entry = before + step;
    const struct metadata_entry *entry = &metadata->entries[want->entry];
    if (want->piece >= entry->piece_count || !can_be_shared(entry, want->piece, sees))
        return wire_fault(reader, message, "an unknown piece");
    struct box outer = share_piece_box(entry, want->piece);
    RETURN_IF_ERROR(wire_box(reader, arena, message, outer, &want->region));
    if (!reader->failed && (!box_contains(outer, want->region) || box_volume(want->region) == 0))
        return wire_fault(reader, message, "a region is not inside its piece");
    return DCP_OK;
}

dcp_status share_wants_decode(const void *bytes, size_t size, const struct metadata *metadata,
                              struct share_wants *wants)
{
    struct reader reader;
    uint32_t before = 0;
    *wants = (struct share_wants){0};
    arena_init(&wants->arena, 0);
    reader_init(&reader, bytes, size);
    RETURN_IF_ERROR(wire_begin(&reader, WIRE_LOAD_WANTS, message));
    bool sees = reader_u8(&reader) != 0;
    size_t count = wire_count(&reader);
    wants->wants = arena_allocate_array(&wants->arena, count, sizeof *wants->wants);
    if (wants->wants == NULL)
        return error_no_memory(count * sizeof *wants->wants, message);
    for (size_t i = 0; i < count; i++) {
        RETURN_IF_ERROR(
            decode_want(&reader, metadata, &wants->arena, before, sees, &wants->wants[i]));
        before = wants->wants[i].entry;
        wants->count++;
    }
    return wire_end(&reader, message);
}

void share_wants_free(struct share_wants *wants)
{
    arena_free(&wants->arena);
    *wants = (struct share_wants){0};
}
