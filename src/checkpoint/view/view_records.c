/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/view/view_records.h"

#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "state/record_rest.h"

/* Parts of a record that are apart; threads that read all of it make a few. */
enum { SPANS_MOST = 1024 };

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

void view_records_free(struct view_records *records)
{
    if (!records)
        return;
    for (size_t i = 0; i < records->count; i++)
        memory_release(records->records[i].spans);
    pthread_mutex_destroy(&records->mutex);
    memory_release(records->records);
    memory_release(records);
}

/* ---- which records there are ---- */

static bool is_storage(const struct metadata_piece *piece)
{
    return piece->encoding == PIECE_VIEW;
}

static struct view_record record_of(const struct metadata *metadata, struct view_chunk of)
{
    const struct metadata_piece *piece = &metadata->entries[of.entry].pieces[of.chunk];
    return (struct view_record){.file = piece->file,
                                .place =
                                    is_storage(piece) ? piece->view->data_offset : piece->offset,
                                .of = of};
}

static int compare_records(const void *left, const void *right)
{
    const struct view_record *a = left, *b = right;
    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    return a->place < b->place ? -1 : a->place > b->place;
}

uint64_t view_record_bytes(const struct metadata *metadata, struct view_chunk of)
{
    const struct metadata_entry *entry = &metadata->entries[of.entry];
    const struct metadata_piece *piece = &entry->pieces[of.chunk];
    const struct box whole = {entry->ndim, piece->offsets, piece->sizes};
    return is_storage(piece) ? piece->view->storage_bytes
                             : (uint64_t)box_volume(whole) * dcp_dtype_size(entry->dtype);
}

/* Of all tensors, each record once. */
static size_t list_records(const struct metadata *metadata, struct view_record *records)
{
    size_t listed = 0, count = 0;
    for (size_t i = 0; i < metadata->count; i++) {
        const struct metadata_entry *entry = &metadata->entries[i];
        for (size_t chunk = 0; entry->is_tensor && chunk < entry->piece_count; chunk++)
            records[listed++] = record_of(metadata, (struct view_chunk){i, chunk});
    }
    if (listed > 1)
        qsort(records, listed, sizeof *records, compare_records);
    for (size_t i = 0; i < listed; i++)
        if (i == 0 || compare_records(&records[count - 1], &records[i]) != 0)
            records[count++] = records[i];
    return count;
}

static dcp_status make_records(struct view_records *records, const struct metadata *metadata)
{
    size_t count = 0;
    if (records->records)
        return DCP_OK;
    for (size_t i = 0; i < metadata->count; i++)
        count += metadata->entries[i].piece_count;
    records->records = memory_allocate_zeroed(count, sizeof *records->records);
    if (!records->records)
        return error_no_memory(count * sizeof *records->records, "records");
    records->count = list_records(metadata, records->records);
    return DCP_OK;
}

static struct view_record *find_listed(const struct view_records *records,
                                       const struct metadata *metadata, struct view_chunk of)
{
    const struct view_record wanted = record_of(metadata, of);
    return bsearch(&wanted, records->records, records->count, sizeof wanted, compare_records);
}

static bool has_chunk(const struct metadata *metadata, struct view_chunk of)
{
    return of.entry < metadata->count && metadata->entries[of.entry].is_tensor &&
           of.chunk < metadata->entries[of.entry].piece_count;
}

/* Whether they are those of the metadata. */
static bool are_of(const struct view_records *records, const struct metadata *metadata)
{
    for (size_t i = 0; i < records->count; i++) {
        const struct view_record *record = &records->records[i];
        if (!has_chunk(metadata, record->of) ||
            find_listed(records, metadata, record->of) != record)
            return false;
    }
    for (size_t i = 0; i < metadata->count; i++)
        for (size_t chunk = 0; has_chunk(metadata, (struct view_chunk){i, chunk}); chunk++)
            if (!find_listed(records, metadata, (struct view_chunk){i, chunk}))
                return false;
    return true;
}

void view_attach_records(dcp_checkpoint *checkpoint, struct view_records *records)
{
    if (records->records && !are_of(records, checkpoint->metadata)) {
        view_records_free(records);
        return;
    }
    view_records_free(checkpoint->records);
    checkpoint->records = records;
}

/* Called with the mutex. */
static dcp_status find_record(const dcp_checkpoint *checkpoint, struct view_chunk of,
                              struct view_record **record)
{
    struct view_records *records = checkpoint->records;
    RETURN_IF_ERROR(make_records(records, checkpoint->metadata));
    *record = find_listed(records, checkpoint->metadata, of);
    (*record)->of = of;
    return DCP_OK;
}

/* ---- joining ---- */

static dcp_status make_room(struct view_record *record)
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
static void join_next(struct view_record *record, size_t at)
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
static dcp_status add_span(struct view_record *record, const struct view_span *span)
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

dcp_status view_take_span(dcp_checkpoint *checkpoint, struct view_chunk of,
                          const struct view_span *span)
{
    const struct metadata_entry *entry = &checkpoint->metadata->entries[of.entry];
    struct view_records *records = checkpoint->records;
    struct view_record *record;
    struct shard_part_sum sum;
    bool complete = false;
    pthread_mutex_lock(&records->mutex);
    dcp_status status = find_record(checkpoint, of, &record);
    if (status == DCP_OK)
        status = add_span(record, span);
    if (status == DCP_OK) {
        complete = record->spans[0].from == 0 &&
                   record->spans[0].end == view_record_bytes(checkpoint->metadata, of);
        sum = record->spans[0].sum;
        record->count = complete ? 0 : record->count;
    }
    pthread_mutex_unlock(&records->mutex);
    return complete ? shard_join_sums(checkpoint->reader, entry, &entry->pieces[of.chunk], &sum, 1)
                    : status;
}

uint64_t view_count_unheld(const dcp_checkpoint *checkpoint)
{
    struct shard_read_figures figures;
    shard_reader_figures(checkpoint->reader, &figures);
    return figures.bytes_unchecked - figures.bytes_bare;
}

bool view_has_unheld(const dcp_checkpoint *checkpoint, uint64_t before)
{
    const struct view_records *records = checkpoint->records;
    return records && records->all && view_count_unheld(checkpoint) != before;
}

dcp_status view_take_unheld(dcp_checkpoint *checkpoint, struct view_chunk of)
{
    struct view_record *record;
    pthread_mutex_lock(&checkpoint->records->mutex);
    dcp_status status = find_record(checkpoint, of, &record);
    if (status == DCP_OK)
        record->unheld = true;
    pthread_mutex_unlock(&checkpoint->records->mutex);
    return status;
}

bool view_is_joined(const dcp_checkpoint *checkpoint, dcp_verification verification,
                    struct view_chunk of, uint64_t wanted)
{
    const struct metadata_piece *piece = &checkpoint->metadata->entries[of.entry].pieces[of.chunk];
    uint64_t bytes = view_record_bytes(checkpoint->metadata, of);
    if (is_storage(piece) && (!piece->view->has_crc || piece->view->deflated))
        return false;
    if (!checkpoint->records || verification != DCP_VERIFY_ALL || wanted >= bytes ||
        bytes <= RECORD_REST_SMALL)
        return false;
    return checkpoint->records->all || !record_rest_pays(verification, wanted, bytes);
}
