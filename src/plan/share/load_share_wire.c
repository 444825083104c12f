/* SPDX-License-Identifier: BSD-3-Clause */
/* The message in which the coordinator assigns readers. The memory allocated per byte of it is
 * bounded. Whatever the message says, after decoding, regions are inside their pieces, and runs
 * cover them, each element once. */
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "plan/load/load_intersect.h"
#include "plan/share/load_share.h"
#include "plan/share/load_share_assign.h"
#include "plan/wire.h"

static const char message[] = "assignment of readers";

/* Bounds what a window may be made to hold. */
#define WINDOW_MOST ((uint64_t)64 << 20)

static void encode_sets(const struct load_share *share, struct buffer *out)
{
    buffer_append_varint(out, share->set_count);
    for (size_t i = 0; i < share->set_count; i++) {
        uint32_t before = 0;
        buffer_append_varint(out, share->sets[i].count);
        for (size_t c = 0; c < share->sets[i].count; c++) {
            buffer_append_varint(out, share->sets[i].classes[c] - before);
            before = share->sets[i].classes[c];
        }
    }
}

static int compare_by_region(const void *left, const void *right, void *context)
{
    const struct load_share *share = context;
    const struct share_run *a = &share->runs[*(const uint32_t *)left];
    const struct share_run *b = &share->runs[*(const uint32_t *)right];
    if (a->region != b->region)
        return a->region < b->region ? -1 : 1;
    return a->from < b->from ? -1 : a->from > b->from;
}

/* Each region with its runs: their ends and readers. */
static dcp_status encode_regions(const struct load_share *share, const struct metadata *metadata,
                                 struct buffer *out)
{
    uint32_t *order = memory_allocate_array(share->run_count, sizeof *order);
    if (order == NULL)
        return error_no_memory(share->run_count * sizeof *order, message);
    for (size_t i = 0; i < share->run_count; i++)
        order[i] = (uint32_t)i;
    if (share->run_count > 1)
        qsort_r(order, share->run_count, sizeof *order, compare_by_region, (void *)share);
    uint32_t before = 0;
    size_t at = 0;
    buffer_append_varint(out, share->region_count);
    for (uint32_t i = 0; i < share->region_count; i++) {
        const struct share_region *region = &share->regions[i];
        buffer_append_varint(out, region->entry - before);
        buffer_append_varint(out, region->piece);
        buffer_append_varint(out, region->set);
        buffer_append_u8(out, region->striped);
        wire_append_box(out, share_piece_box(&metadata->entries[region->entry], region->piece),
                        region->box);
        for (; at < share->run_count && share->runs[order[at]].region == i; at++) {
            const struct share_run *run = &share->runs[order[at]];
            buffer_append_varint(out, run->reader);
            buffer_append_varint(out, (uint64_t)(box_volume(region->box) - run->end));
        }
        before = region->entry;
    }
    memory_release(order);
    return DCP_OK;
}

dcp_status load_share_encode(const struct load_share *share, const struct metadata *metadata,
                             struct buffer *out)
{
    buffer_append_u8(out, WIRE_LOAD_SHARE);
    buffer_append_varint(out, share->rank_count);
    buffer_append_varint(out, share->class_count);
    for (uint32_t rank = 0; rank < share->rank_count; rank++)
        buffer_append_varint(out, share->class_of[rank]);
    buffer_append_varint(out, share->window);
    buffer_append_varint(out, share->lot);
    buffer_append_varint(out, share->bytes_wanted);
    buffer_append_varint(out, share->bytes_distinct);
    buffer_append_varint(out, share->bytes_exchanged);
    encode_sets(share, out);
    RETURN_IF_ERROR(encode_regions(share, metadata, out));
    return buffer_status(out);
}

static dcp_status decode_head(struct reader *reader, uint32_t rank_count, struct load_share *share)
{
    share->rank_count = wire_u32(reader);
    share->class_count = wire_u32(reader);
    if (reader->failed || share->rank_count != rank_count || share->class_count > rank_count)
        return wire_fault(reader, message, "the number of ranks is wrong");
    uint32_t *class_of =
        arena_allocate_array(&share->arena, share->rank_count, sizeof *share->class_of);
    if (class_of == NULL)
        return error_no_memory(share->rank_count * sizeof *class_of, message);
    share->class_of = class_of;
    for (uint32_t rank = 0; rank < rank_count; rank++) {
        class_of[rank] = wire_u32(reader);
        if (class_of[rank] >= share->class_count)
            return wire_fault(reader, message, "an unknown class");
    }
    uint64_t window = reader_varint(reader);
    if (window < 16 || window > WINDOW_MOST)
        return wire_fault(reader, message, "the size of a window is invalid");
    share->window = (size_t)window;
    share->lot = reader_varint(reader);
    share->bytes_wanted = reader_varint(reader);
    share->bytes_distinct = reader_varint(reader);
    share->bytes_exchanged = reader_varint(reader);
    return DCP_OK;
}

static dcp_status decode_set(struct reader *reader, struct load_share *share)
{
    size_t count = wire_count(reader);
    if (count == 0)
        return wire_fault(reader, message, "a set of no ranks");
    uint32_t *classes = arena_allocate_array(&share->arena, count, sizeof *classes);
    if (classes == NULL)
        return error_no_memory(count * sizeof *classes, message);
    uint64_t class = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t step = wire_u32(reader);
        class += step;
        if (class >= share->class_count || (i > 0 && step == 0))
            return wire_fault(reader, message, "an unknown class");
        classes[i] = (uint32_t) class;
    }
    share->sets[share->set_count++] = (struct share_set){classes, count};
    return DCP_OK;
}

static dcp_status decode_region(struct reader *reader, const struct metadata *metadata,
                                uint32_t before, struct load_share *share,
                                struct share_region *region)
{
    uint32_t step = wire_u32(reader);
    region->piece = wire_u32(reader);
    region->set = wire_u32(reader);
    region->striped = reader_u8(reader) != 0;
    if (reader->failed || step >= metadata->count - before || region->set >= share->set_count)
        return wire_fault(reader, message, "an unknown name or set");
    region->entry = before + step;
    const struct metadata_entry *entry = &metadata->entries[region->entry];
    if (region->piece >= entry->piece_count ||
        (!entry->is_tensor && entry->pieces[region->piece].encoding != PIECE_STREAM))
        return wire_fault(reader, message, "an unknown piece");
    struct box outer = share_piece_box(entry, region->piece);
    RETURN_IF_ERROR(wire_box(reader, &share->arena, message, outer, &region->box));
    if (!reader->failed && (!box_contains(outer, region->box) || box_volume(region->box) == 0))
        return wire_fault(reader, message, "a region is not inside its piece");
    if (!reader->failed && !entry->is_tensor && (!box_equal(outer, region->box) || region->striped))
        return wire_fault(reader, message, "a part of an object");
    return DCP_OK;
}

static dcp_status decode_runs(struct reader *reader, struct load_share *share, uint32_t region,
                              bool is_object, struct share_runs *runs)
{
    int64_t volume = box_volume(share->regions[region].box), from = 0;
    while (from < volume) {
        uint32_t rank = wire_u32(reader);
        int64_t left = wire_size(reader), end = volume - left;
        if (reader->failed || rank >= share->rank_count || end <= from || end > volume ||
            (is_object && end != volume))
            return wire_fault(reader, message, "a run is empty, or not inside its region");
        RETURN_IF_ERROR(share_runs_append(runs, (struct share_run){region, rank, from, end}));
        from = end;
    }
    return DCP_OK;
}

static dcp_status decode_body(struct reader *reader, const struct metadata *metadata,
                              struct load_share *share, struct share_runs *runs)
{
    size_t sets = wire_count(reader);
    uint32_t before = 0;
    share->sets = memory_allocate_array(sets, sizeof *share->sets);
    if (share->sets == NULL)
        return error_no_memory(sets * sizeof *share->sets, message);
    while (share->set_count < sets)
        RETURN_IF_ERROR(decode_set(reader, share));
    size_t regions = wire_count(reader);
    share->regions = memory_allocate_array(regions, sizeof *share->regions);
    if (share->regions == NULL)
        return error_no_memory(regions * sizeof *share->regions, message);
    for (; share->region_count < regions; share->region_count++) {
        struct share_region *region = &share->regions[share->region_count];
        RETURN_IF_ERROR(decode_region(reader, metadata, before, share, region));
        before = region->entry;
        RETURN_IF_ERROR(decode_runs(reader, share, (uint32_t)share->region_count,
                                    !metadata->entries[region->entry].is_tensor, runs));
    }
    return wire_end(reader, message);
}

dcp_status load_share_decode(const void *bytes, size_t size, const struct metadata *metadata,
                             uint32_t rank_count, struct load_share *share)
{
    struct reader reader;
    *share = (struct load_share){0};
    arena_init(&share->arena, 0);
    reader_init(&reader, bytes, size);
    RETURN_IF_ERROR(wire_begin(&reader, WIRE_LOAD_SHARE, message));
    RETURN_IF_ERROR(decode_head(&reader, rank_count, share));
    struct share_runs runs = {0};
    dcp_status status = decode_body(&reader, metadata, share, &runs);
    share_runs_hand_over(&runs, share);
    return status == DCP_OK ? load_share_order_runs(share, metadata) : status;
}
