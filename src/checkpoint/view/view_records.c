/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/view/view_records.h"

#include <pthread.h>
#include <string.h>

#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "state/record_rest.h"

/* Bytes that are read at a time of what is missing. */
#define STEP ((int64_t)1 << 20)
/* Parts of a record that are apart; threads that read all of it make a few. */
enum { SPANS_MOST = 1024 };

struct record {
    struct view_span *spans; /* in order, none of which continues another */
    size_t count;
    size_t capacity;
};

/* Few checkpoints have records that are read in parts: there is room for them from the first part
 * on. */
struct view_records {
    bool all; /* see view_join_records() */
    pthread_mutex_t mutex;
    struct record *records; /* of all pieces, then of each entry's storage */
    size_t count;
    size_t storages; /* the first of a storage */
    size_t *first;   /* by entry, the record of its first piece */
};

static int64_t volume_of(struct view_owner owner)
{
    const struct box whole = {owner.entry->ndim, owner.piece->offsets, owner.piece->sizes};
    return box_volume(whole);
}

dcp_status view_records_new(struct view_records **records)
{
    struct view_records *made = *records = memory_allocate_zeroed(1, sizeof *made);
    if (!made)
        return error_no_memory(sizeof *made, "records");
    pthread_mutex_init(&made->mutex, NULL);
    return DCP_OK;
}

void view_join_records(dcp_checkpoint *checkpoint)
{
    checkpoint->records->all = true;
}

struct view_records *view_detach_records(dcp_checkpoint *checkpoint)
{
    struct view_records *records = checkpoint->records;
    checkpoint->records = NULL;
    return records;
}

static size_t count_pieces(const struct metadata *metadata)
{
    size_t count = 0;
    for (size_t i = 0; i < metadata->count; i++)
        count += metadata->entries[i].piece_count;
    return count;
}

void view_attach_records(dcp_checkpoint *checkpoint, struct view_records *records)
{
    const struct metadata *metadata = checkpoint->metadata;
    size_t pieces = count_pieces(metadata);
    if (records->count != 0 &&
        (records->storages != pieces || records->count != pieces + metadata->count)) {
        view_records_free(records);
        return;
    }
    view_records_free(checkpoint->records);
    checkpoint->records = records;
}

void view_records_free(struct view_records *records)
{
    if (!records)
        return;
    for (size_t i = 0; i < records->count; i++)
        memory_release(records->records[i].spans);
    pthread_mutex_destroy(&records->mutex);
    memory_release(records->records);
    memory_release(records->first);
    memory_release(records);
}

/* ---- joining ---- */

static dcp_status make_records(struct view_records *records, const struct metadata *metadata)
{
    if (records->records)
        return DCP_OK;
    size_t pieces = count_pieces(metadata), count = pieces + metadata->count, at = 0;
    size_t *first = memory_allocate_array(metadata->count, sizeof *first);
    struct record *made = memory_allocate_zeroed(count, sizeof *made);
    if (!first || !made) {
        memory_release(first);
        memory_release(made);
        return error_no_memory(count * sizeof *made, "records");
    }
    for (size_t i = 0; i < metadata->count; i++) {
        first[i] = at;
        at += metadata->entries[i].piece_count;
    }
    records->records = made;
    records->first = first;
    records->count = count;
    records->storages = pieces;
    return DCP_OK;
}

static struct record *find_record(const struct view_records *records, struct view_owner owner)
{
    size_t number = owner.is_storage ? records->storages + owner.index
                                     : records->first[owner.index] + owner.chunk;
    return &records->records[number];
}

static dcp_status make_room(struct record *record)
{
    size_t capacity = record->capacity > 0 ? 2 * record->capacity : 4;
    if (record->count < record->capacity)
        return DCP_OK;
    struct view_span *spans = memory_reallocate_array(record->spans, capacity, sizeof *spans);
    if (!spans)
        return error_no_memory(capacity * sizeof *spans, "parts of a record");
    record->spans = spans;
    record->capacity = capacity;
    return DCP_OK;
}

/* A span that the one behind it continues becomes one with it. */
static void join_next(struct record *record, size_t at)
{
    if (at + 1 >= record->count || record->spans[at].end != record->spans[at + 1].from)
        return;
    struct view_span *span = &record->spans[at], *next = span + 1;
    span->end = next->end;
    span->sum.crc = crc32_join(span->sum.crc, next->sum.crc, next->sum.size);
    span->sum.size += next->sum.size;
    record->count--;
    memmove(next, next + 1, (record->count - at - 1) * sizeof *next);
}

/* What has been read before counts once. Of a record that is read here and there, nothing is kept
 * but the latest spans. */
static dcp_status add_span(struct record *record, const struct view_span *span)
{
    size_t at = record->count;
    while (at > 0 && record->spans[at - 1].from >= span->from)
        at--;
    if ((at > 0 && record->spans[at - 1].end > span->from) ||
        (at < record->count && record->spans[at].from < span->end))
        return DCP_OK;
    if (record->count == SPANS_MOST)
        at = record->count = 0;
    RETURN_IF_ERROR(make_room(record));
    memmove(&record->spans[at + 1], &record->spans[at],
            (record->count - at) * sizeof *record->spans);
    record->spans[at] = *span;
    record->count++;
    join_next(record, at);
    if (at > 0)
        join_next(record, at - 1);
    return DCP_OK;
}

dcp_status view_take_span(dcp_checkpoint *checkpoint, struct view_owner owner,
                          const struct view_span *span)
{
    struct view_records *records = checkpoint->records;
    struct shard_part_sum sum;
    bool complete = false;
    if (!span->sum.known)
        return DCP_OK;
    pthread_mutex_lock(&records->mutex);
    dcp_status status = make_records(records, checkpoint->metadata);
    struct record *record = status == DCP_OK ? find_record(records, owner) : NULL;
    if (status == DCP_OK)
        status = add_span(record, span);
    if (status == DCP_OK && record->count > 0) {
        complete = record->spans[0].from == 0 && record->spans[0].end == volume_of(owner);
        sum = record->spans[0].sum;
        record->count = complete ? 0 : record->count;
    }
    pthread_mutex_unlock(&records->mutex);
    return complete ? shard_join_sums(checkpoint->reader, owner.entry, owner.piece, &sum, 1)
                    : status;
}

bool view_is_joined(const dcp_checkpoint *checkpoint, dcp_verification verification,
                    struct view_owner owner, int64_t count)
{
    uint64_t size = dcp_dtype_size(owner.entry->dtype);
    uint64_t bytes = (uint64_t)volume_of(owner) * size, wanted = (uint64_t)count * size;
    if (!checkpoint->records || verification != DCP_VERIFY_ALL || bytes <= RECORD_REST_SMALL)
        return false;
    return checkpoint->records->all || !record_rest_pays(verification, wanted, bytes);
}

/* ---- what is missing ---- */

static dcp_status read_gap(dcp_checkpoint *checkpoint, struct view_owner owner,
                           unsigned char *space, struct view_span *gap)
{
    const struct box whole = {owner.entry->ndim, owner.piece->offsets, owner.piece->sizes};
    int64_t size = (int64_t)dcp_dtype_size(owner.entry->dtype), step = STEP / size;
    struct shard_piece *opened;
    dcp_status status =
        shard_piece_open_part(checkpoint->reader, owner.entry, owner.piece, gap->from, gap->end,
                              DCP_VERIFY_ALL, NULL, &gap->sum, &opened);
    for (int64_t at = gap->from; status == DCP_OK && at < gap->end; at += step) {
        int64_t end = gap->end - at < step ? gap->end : at + step;
        status = shard_piece_read_span(opened, whole, at, end, space);
    }
    if (status == DCP_OK)
        status = shard_piece_end(opened, (uint64_t)(gap->end - gap->from) * (uint64_t)size);
    shard_piece_close(opened);
    return status;
}

/* Gap after gap; what has no sum after all is left. */
static dcp_status complete(dcp_checkpoint *checkpoint, struct view_owner owner,
                           unsigned char *space)
{
    struct record *record = find_record(checkpoint->records, owner);
    while (record->count > 0) {
        const struct view_span *spans = record->spans;
        struct view_span gap = {0, spans[0].from, {0}};
        if (gap.end == 0) {
            gap.from = spans[0].end;
            gap.end = record->count > 1 ? spans[1].from : volume_of(owner);
        }
        RETURN_IF_ERROR(read_gap(checkpoint, owner, space, &gap));
        record->count = gap.sum.known ? record->count : 0;
        RETURN_IF_ERROR(view_take_span(checkpoint, owner, &gap));
    }
    return DCP_OK;
}

static dcp_status complete_entry(dcp_checkpoint *checkpoint, size_t index, unsigned char *space)
{
    const struct metadata_entry *entry = &checkpoint->metadata->entries[index];
    struct view_storage storage;
    for (size_t chunk = 0; chunk < entry->piece_count; chunk++)
        RETURN_IF_ERROR(complete(checkpoint, view_owner_of(entry, index, chunk), space));
    const struct view_owner probe = {.index = index, .is_storage = true};
    if (find_record(checkpoint->records, probe)->count == 0)
        return DCP_OK;
    view_storage_init(&storage, entry);
    return complete(checkpoint, view_owner_of_storage(&storage, index), space);
}

dcp_status view_complete_records(dcp_checkpoint *checkpoint)
{
    dcp_status status = DCP_OK;
    if (!checkpoint->records || !checkpoint->records->records)
        return DCP_OK;
    unsigned char *space = memory_allocate((size_t)STEP);
    if (!space)
        return error_no_memory((size_t)STEP, "what was not read of a record");
    for (size_t i = 0; i < checkpoint->metadata->count && status == DCP_OK; i++)
        status = complete_entry(checkpoint, i, space);
    memory_release(space);
    return status;
}
