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
/* Reads that the source is told of at a time. */
#define SPANS 1024

/* Records that follow each other. */
struct header_span {
    size_t first, count;
};

/* Headers that are not in memory yet, and the room to read them. */
struct locating {
    struct zip_archive *archive;
    struct byte_range ranges[SPANS];
    struct header_span spans[SPANS];
    size_t count;
    unsigned char room[SPAN_MOST];
};

/* Neighbouring records whose headers are read at once. They are nearly always listed in the order
 * in which they lie. */
static struct header_span span_at(const struct zip_archive *archive, size_t first,
                                  struct byte_range *range)
{
    struct header_span span = {.first = first};
    *range = (struct byte_range){archive->records[first].header_offset, ZIP_LOCAL_HEADER_SIZE};
    for (size_t i = first; i < archive->count; i++, span.count++) {
        uint64_t offset = archive->records[i].header_offset, end = range->offset + range->size;
        if (i > first && (offset < end || offset - end > GAP_MOST ||
                          offset - range->offset > SPAN_MOST - ZIP_LOCAL_HEADER_SIZE))
            break;
        range->size = (size_t)(offset - range->offset) + ZIP_LOCAL_HEADER_SIZE;
    }
    return span;
}

/* What is damaged or cannot be read is told when the record is read. */
static dcp_status pass_over(dcp_status status)
{
    if (status == DCP_OK || status == DCP_ERR_NO_MEMORY)
        return status;
    error_clear();
    return DCP_OK;
}

static dcp_status locate_span(struct zip_archive *archive, const struct header_span *span,
                              const unsigned char *bytes)
{
    uint64_t offset = archive->records[span->first].header_offset;
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < span->count && status == DCP_OK; i++) {
        struct zip_record *record = &archive->records[span->first + i];
        status = zip_header_read(archive, record, bytes + (record->header_offset - offset),
                                 &record->data_offset);
    }
    return pass_over(status);
}

static dcp_status visit_span(void *context, size_t index, const unsigned char *bytes,
                             dcp_status status)
{
    struct locating *locating = context;
    if (status != DCP_OK)
        return pass_over(status);
    return locate_span(locating->archive, &locating->spans[index], bytes);
}

static dcp_status read_spans(struct locating *locating)
{
    size_t count = locating->count;
    locating->count = 0;
    return byte_source_read_ranges(&locating->archive->source, locating->ranges, count,
                                   locating->room, visit_span, locating);
}

/* Now, if it is in memory; one that is not in the file is told when the record is read. */
static dcp_status add_span(struct locating *locating, const struct header_span *span,
                           const struct byte_range *range)
{
    struct zip_archive *archive = locating->archive;
    const unsigned char *bytes = zip_window_find(archive, range->offset, range->size);
    if (bytes)
        return locate_span(archive, span, bytes);
    if (range->offset > archive->source.size || range->size > archive->source.size - range->offset)
        return DCP_OK;
    locating->spans[locating->count] = *span;
    locating->ranges[locating->count++] = *range;
    return locating->count == SPANS ? read_spans(locating) : DCP_OK;
}

dcp_status zip_locate(struct zip_archive *archive)
{
    struct locating *locating = memory_allocate(sizeof *locating);
    dcp_status status = DCP_OK;
    if (!locating)
        return error_no_memory(sizeof *locating, "the headers of a zip archive's records");
    locating->archive = archive;
    locating->count = 0;
    for (size_t first = 0; first < archive->count && status == DCP_OK;) {
        struct byte_range range;
        const struct header_span span = span_at(archive, first, &range);
        first += span.count;
        status = add_span(locating, &span, &range);
    }
    if (status == DCP_OK)
        status = read_spans(locating);
    memory_release(locating);
    return status;
}
