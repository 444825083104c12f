/* SPDX-License-Identifier: BSD-3-Clause */
/* What was not read of records, of which parts were. */
#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/view/view_records.h"
#include "state/box.h"

/* Bytes that are read at a time. */
#define STEP ((uint64_t)1 << 20)

/* A gap in what a tensor of a whole record has been read of, in its elements. */
static dcp_status read_gap(dcp_checkpoint *checkpoint, const struct metadata_entry *entry,
                           const struct metadata_piece *piece, unsigned char *space,
                           struct view_span *gap)
{
    const struct box whole = {entry->ndim, piece->offsets, piece->sizes};
    uint64_t size = dcp_dtype_size(entry->dtype);
    int64_t from = (int64_t)(gap->from / size), end = (int64_t)(gap->end / size);
    int64_t step = (int64_t)(STEP / size);
    struct shard_piece *opened;
    dcp_status status = shard_piece_open_part(checkpoint->reader, entry, piece, from, end,
                                              DCP_VERIFY_ALL, NULL, &gap->sum, &opened);
    for (int64_t at = from; status == DCP_OK && at < end; at += step)
        status = shard_piece_read_span(opened, whole, at, end - at < step ? end : at + step, space);
    if (status == DCP_OK)
        status = shard_piece_end(opened, gap->end - gap->from);
    shard_piece_close(opened);
    return status;
}

static dcp_status fill_gap(dcp_checkpoint *checkpoint, struct view_chunk of, unsigned char *space,
                           struct view_span *gap)
{
    const struct metadata_entry *entry = &checkpoint->metadata->entries[of.entry];
    const struct metadata_piece *piece = &entry->pieces[of.chunk];
    struct view_storage storage;
    if (piece->encoding != PIECE_VIEW)
        return read_gap(checkpoint, entry, piece, space, gap);
    view_storage_init(&storage, entry, piece, DCP_U8);
    return read_gap(checkpoint, &storage.entry, &storage.piece, space, gap);
}

/* All of the record is read in order to check the first element of a tensor in it. */
static dcp_status check_whole(dcp_checkpoint *checkpoint, struct view_chunk of)
{
    const struct metadata_entry *entry = &checkpoint->metadata->entries[of.entry];
    const struct metadata_piece *piece = &entry->pieces[of.chunk];
    int64_t ones[DCP_MAX_DIMS];
    unsigned char element[16];
    for (int32_t i = 0; i < entry->ndim; i++)
        ones[i] = 1;
    const struct box first = {entry->ndim, piece->offsets, ones};
    const struct state_chunk target = {
        .offsets = (int64_t *)piece->offsets, .sizes = ones, .strides = ones, .data = element};
    return shard_read_tensor(checkpoint->reader, entry, piece, first, entry->dtype, &target,
                             DCP_VERIFY_RECORDS);
}

/* Gap after gap; what has no sum after all is read whole. */
static dcp_status complete(dcp_checkpoint *checkpoint, struct view_record *record,
                           unsigned char *space)
{
    const struct view_chunk of = record->of;
    while (record->count > 0 && !record->unheld) {
        const struct view_span *spans = record->spans;
        struct view_span gap = {0, spans[0].from, {0}};
        if (gap.end == 0) {
            gap.from = spans[0].end;
            gap.end =
                record->count > 1 ? spans[1].from : view_record_bytes(checkpoint->metadata, of);
        }
        RETURN_IF_ERROR(fill_gap(checkpoint, of, space, &gap));
        record->unheld = !gap.sum.known;
        if (gap.sum.known)
            RETURN_IF_ERROR(view_take_span(checkpoint, of, &gap));
    }
    bool unheld = record->unheld;
    record->unheld = false;
    record->count = 0;
    return unheld ? check_whole(checkpoint, of) : DCP_OK;
}

dcp_status view_complete_records(dcp_checkpoint *checkpoint)
{
    struct view_records *records = checkpoint->records;
    dcp_status status = DCP_OK;
    if (!records || !records->records)
        return DCP_OK;
    unsigned char *space = memory_allocate((size_t)STEP);
    if (!space)
        return error_no_memory((size_t)STEP, "what was not read of a record");
    for (size_t i = 0; i < records->count && status == DCP_OK; i++)
        status = complete(checkpoint, &records->records[i], space);
    memory_release(space);
    return status;
}
