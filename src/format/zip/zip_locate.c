/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the data of an archive's records begins, which only their local headers say: these lie all
 * over the file, and a read of each would wait for a disk by itself. */
#include "base/error.h"
#include "base/memory.h"
#include "format/zip/zip_directory.h"

/* Headers that are no further apart are read at once: what lies between costs less than one more
 * request. */
#define GAP_MOST ((uint64_t)16 << 10)
/* Bytes that are read at once, at most. */
#define SPAN_MOST ((size_t)64 << 10)
/* Reads that are announced before the first of them takes place. */
#define SPANS_AHEAD 256

/* Neighbouring records whose headers are read at once. */
struct header_span {
    size_t first, count;
    uint64_t offset;
    size_t size;
};

/* Records are nearly always listed in the order in which they lie. */
static struct header_span span_at(const struct zip_archive *archive, size_t first)
{
    struct header_span span = {.first = first, .size = ZIP_LOCAL_HEADER_SIZE};
    if (first < archive->count)
        span.offset = archive->records[first].header_offset;
    for (size_t i = first; i < archive->count; i++, span.count++) {
        uint64_t offset = archive->records[i].header_offset, end = span.offset + span.size;
        if (i > first && (offset < end || offset - end > GAP_MOST ||
                          offset - span.offset > SPAN_MOST - ZIP_LOCAL_HEADER_SIZE))
            break;
        span.size = (size_t)(offset - span.offset) + ZIP_LOCAL_HEADER_SIZE;
    }
    return span;
}

/* What is damaged or cannot be read is told when the record is read. */
static dcp_status locate_span(struct zip_archive *archive, const struct header_span *span,
                              unsigned char *room)
{
    const unsigned char *bytes;
    dcp_status status = zip_bytes(archive, span->offset, span->size, room, &bytes);
    for (size_t i = 0; i < span->count && status == DCP_OK; i++) {
        struct zip_record *record = &archive->records[span->first + i];
        const unsigned char *header = bytes + (record->header_offset - span->offset);
        status = zip_header_read(archive, record, header, &record->data_offset);
    }
    if (status == DCP_OK || status == DCP_ERR_NO_MEMORY)
        return status;
    error_clear();
    return DCP_OK;
}

dcp_status zip_locate(struct zip_archive *archive)
{
    struct header_span span = span_at(archive, 0), next = span;
    unsigned char *room = memory_allocate(SPAN_MOST);
    dcp_status status =
        room ? DCP_OK : error_no_memory(SPAN_MOST, "the headers of a zip archive's records");
    for (size_t ahead = 0; status == DCP_OK && span.count > 0; ahead--) {
        for (; ahead < SPANS_AHEAD && next.count > 0; ahead++) {
            if (archive->source.expect)
                archive->source.expect(archive->source.context, next.offset, next.size);
            next = span_at(archive, next.first + next.count);
        }
        status = locate_span(archive, &span, room);
        span = span_at(archive, span.first + span.count);
    }
    memory_release(room);
    return status;
}
