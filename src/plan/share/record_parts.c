/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/share/record_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* A stream up to here may be read whole along with its neighbours, which depends on how much of it
 * a rank wants. */
#define LEAST ((uint64_t)64 << 10)

/* In whatever order. */
static bool is_all_of_view(const struct metadata_entry *entry, const struct metadata_piece *piece)
{
    uint64_t bytes;
    return shape_bytes(entry->ndim, piece->sizes, entry->dtype, &bytes) &&
           bytes == piece->view->storage_bytes;
}

static bool is_all_of_stream(const struct metadata_entry *entry, const struct metadata_piece *piece)
{
    uint64_t bytes, stored;
    return piece->encoding == PIECE_STREAM ||
           (shape_bytes(entry->ndim, piece->sizes, entry->dtype, &bytes) &&
            metadata_stream_bytes(entry, piece, &stored) && bytes == stored);
}

/* Whether a piece is all of a record that may have a checksum; for a stream that is known when it
 * is read. */
static bool is_record(const struct metadata_entry *entry, const struct metadata_piece *piece)
{
    const struct tensor_view *view = piece->view;
    if (metadata_is_in_stream(piece))
        return piece->length > LEAST && !piece->zstd && is_all_of_stream(entry, piece);
    return piece->encoding == PIECE_VIEW && view->has_crc && !view->deflated &&
           view->data_length > LEAST && is_all_of_view(entry, piece);
}

/* Elements from to end - 1 of what is wanted, as a part. */
static bool find_part(const struct metadata *metadata, const struct share_want *want, int64_t from,
                      int64_t end, struct record_part *part)
{
    const struct metadata_entry *entry = &metadata->entries[want->entry];
    if (!entry->is_tensor || from == end || !is_record(entry, &entry->pieces[want->piece]))
        return false;
    const struct box whole = share_piece_box(entry, want->piece);
    if (end - from == box_volume(whole) || box_run(whole, want->region) < box_volume(want->region))
        return false;
    int64_t first = box_position(whole, want->region, 0);
    *part = (struct record_part){want->entry, want->piece, first + from, first + end, 0, 0};
    return true;
}

bool record_part_of(const struct metadata *metadata, const struct share_want *want,
                    struct record_part *part)
{
    return find_part(metadata, want, 0, box_volume(want->region), part);
}

/* Of a piece that is read in stripes, one rank reads all. */
bool record_part_of_run(const struct metadata *metadata, const struct load_share *share,
                        const struct share_run *run, struct record_part *part)
{
    const struct share_region *region = &share->regions[run->region];
    const struct share_want want = {region->entry, region->piece, region->box};
    return !region->striped && find_part(metadata, &want, run->from, run->end, part);
}

void record_part_append(struct buffer *out, const struct record_part *part)
{
    buffer_append_u32(out, part->entry);
    buffer_append_u32(out, part->piece);
    buffer_append_u64(out, (uint64_t)part->from);
    buffer_append_u64(out, (uint64_t)part->end);
}

/* Whether there is such a part of such a piece. */
static bool is_sound(const struct record_part *part, const struct metadata *metadata)
{
    if (part->entry >= metadata->count)
        return false;
    const struct metadata_entry *entry = &metadata->entries[part->entry];
    if (!entry->is_tensor || part->piece >= entry->piece_count)
        return false;
    const struct metadata_piece *piece = &entry->pieces[part->piece];
    const struct box whole = {entry->ndim, piece->offsets, piece->sizes};
    return part->from >= 0 && part->from < part->end && part->end <= box_volume(whole);
}

dcp_status record_parts_decode(const void *bytes, size_t size, const struct metadata *metadata,
                               uint32_t rank, struct record_part *parts)
{
    struct reader reader;
    size_t count = size / RECORD_PART_SIZE;
    reader_init(&reader, bytes, size);
    if (size % RECORD_PART_SIZE != 0 || count > UINT32_MAX)
        return dcp_error_set(DCP_ERR_GROUP,
                             "rank %" PRIu32 ": its message on parts of records has %zu bytes, "
                             "expected a multiple of %d",
                             rank, size, (int)RECORD_PART_SIZE);
    for (size_t i = 0; i < count; i++) {
        parts[i] = (struct record_part){.entry = reader_u32(&reader),
                                        .piece = reader_u32(&reader),
                                        .from = (int64_t)reader_u64(&reader),
                                        .end = (int64_t)reader_u64(&reader),
                                        .rank = rank,
                                        .index = (uint32_t)i};
        if (!is_sound(&parts[i], metadata))
            return dcp_error_set(DCP_ERR_GROUP,
                                 "rank %" PRIu32 ": part %zu of records that it reads is not in "
                                 "the checkpoint",
                                 rank, i);
    }
    return DCP_OK;
}

static int order(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

static int compare_records(const struct record_part *a, const struct record_part *b)
{
    int by_entry = order(a->entry, b->entry);
    return by_entry != 0 ? by_entry : order(a->piece, b->piece);
}

static int compare_parts(const void *left, const void *right)
{
    const struct record_part *a = left, *b = right;
    int by_record = compare_records(a, b), by_from = order(a->from, b->from);
    int by_end = order(a->end, b->end), by_rank = order(a->rank, b->rank);
    return by_record != 0 ? by_record
           : by_from != 0 ? by_from
           : by_end != 0  ? by_end
           : by_rank != 0 ? by_rank
                          : order(a->index, b->index);
}

size_t record_parts_of_record(const struct record_part *parts, size_t count)
{
    size_t of = 1;
    while (of < count && compare_records(parts, &parts[of]) == 0)
        of++;
    return of;
}

size_t record_parts_alike(const struct record_part *parts, size_t count)
{
    size_t alike = 1;
    while (alike < count && compare_records(parts, &parts[alike]) == 0 &&
           parts->from == parts[alike].from && parts->end == parts[alike].end)
        alike++;
    return alike;
}

/* Whether parts of one record, in order, are all of it. */
static bool are_all(const struct record_part *parts, size_t count, const struct metadata *metadata)
{
    const struct metadata_entry *entry = &metadata->entries[parts->entry];
    const struct metadata_piece *piece = &entry->pieces[parts->piece];
    const struct box whole = {entry->ndim, piece->offsets, piece->sizes};
    int64_t reached = 0;
    for (size_t i = 0; i < count; i += record_parts_alike(&parts[i], count - i)) {
        if (parts[i].from != reached)
            return false;
        reached = parts[i].end;
    }
    return reached == box_volume(whole);
}

size_t record_parts_join(struct record_part *parts, size_t count, const struct metadata *metadata)
{
    size_t kept = 0;
    if (count > 1)
        qsort(parts, count, sizeof *parts, compare_parts);
    for (size_t i = 0, of; i < count; i += of) {
        of = record_parts_of_record(&parts[i], count - i);
        if (!are_all(&parts[i], of, metadata))
            continue;
        memmove(&parts[kept], &parts[i], of * sizeof *parts);
        kept += of;
    }
    return kept;
}
