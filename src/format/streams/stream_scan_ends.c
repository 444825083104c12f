/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds the ends of zip archives that lie one behind the other in a file. */
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "format/streams/stream_scan.h"
#include "format/zip/zip_directory.h"

#define NO_MORE UINT64_MAX

dcp_status scan_look(struct scan_window *window, uint64_t offset, size_t least,
                     const unsigned char **bytes, size_t *available)
{
    uint64_t left = offset < window->file.size ? window->file.size - offset : 0;
    size_t wanted = left < least ? (size_t)left : least;
    bool inside = offset >= window->offset && offset - window->offset <= window->size &&
                  wanted <= window->size - (size_t)(offset - window->offset);
    if (!inside) {
        size_t size = left < SCAN_WINDOW ? (size_t)left : SCAN_WINDOW;
        window->size = 0;
        RETURN_IF_ERROR(byte_source_read(&window->file, offset, window->bytes, size));
        window->offset = offset;
        window->size = size;
    }
    size_t at = (size_t)(offset - window->offset);
    *bytes = window->bytes + at;
    *available = window->size - at;
    return DCP_OK;
}

/* The first end record at `from` or behind it; NO_MORE if there is none. */
static dcp_status find_signature(struct scan_window *window, uint64_t from, uint64_t *place)
{
    *place = NO_MORE;
    while (from < window->file.size) {
        const unsigned char *bytes;
        size_t size;
        RETURN_IF_ERROR(scan_look(window, from, ZIP_END_SIZE, &bytes, &size));
        if (size < ZIP_END_SIZE)
            return DCP_OK;
        size_t places = size - ZIP_END_SIZE + 1;
        for (const unsigned char *at = bytes;
             (at = memchr(at, 'P', places - (size_t)(at - bytes))) != NULL; at++)
            if (load_u32(at) == ZIP_END_SIGNATURE) {
                *place = from + (uint64_t)(at - bytes);
                return DCP_OK;
            }
        from += places;
    }
    return DCP_OK;
}

/* Where the archive of a zip64 end record begins, whose locator says how far into it that lies. */
static dcp_status start_of_zip64(const struct byte_source *file, uint64_t end_record,
                                 uint64_t *start)
{
    unsigned char locator[ZIP_LOCATOR_SIZE], record[ZIP_END64_SIZE];
    *start = NO_MORE;
    if (end_record < sizeof locator + sizeof record)
        return DCP_OK;
    uint64_t place = end_record - sizeof locator - sizeof record;
    RETURN_IF_ERROR(byte_source_read(file, end_record - sizeof locator, locator, sizeof locator));
    RETURN_IF_ERROR(byte_source_read(file, place, record, sizeof record));
    uint64_t inside = load_u64(locator + 8);
    if (load_u32(locator) == ZIP_LOCATOR_SIGNATURE && load_u32(record) == ZIP_END64_SIGNATURE &&
        inside <= place)
        *start = place - inside;
    return DCP_OK;
}

static dcp_status start_of_archive(const struct byte_source *file, uint64_t end_record,
                                   const unsigned char *record, uint64_t *start)
{
    unsigned char header[4];
    uint64_t size = load_u32(record + 12), offset = load_u32(record + 16);
    RETURN_IF_ERROR(start_of_zip64(file, end_record, start));
    if (*start == NO_MORE && size + offset <= end_record)
        *start = end_record - size - offset;
    if (*start == NO_MORE)
        return DCP_OK;
    RETURN_IF_ERROR(byte_source_read(file, *start, header, sizeof header));
    if (load_u32(header) != ZIP_LOCAL_SIGNATURE)
        *start = NO_MORE;
    return DCP_OK;
}

dcp_status scan_find_end(struct scan_window *window, struct scan_ends *ends, bool *found)
{
    *found = false;
    while (true) {
        const unsigned char *bytes;
        unsigned char record[ZIP_END_SIZE];
        size_t size;
        uint64_t place, start;
        RETURN_IF_ERROR(find_signature(window, ends->next, &place));
        if (place == NO_MORE)
            return DCP_OK;
        RETURN_IF_ERROR(scan_look(window, place, ZIP_END_SIZE, &bytes, &size));
        memcpy(record, bytes, sizeof record);
        ends->next = place + 1;
        uint64_t left = window->file.size - place - ZIP_END_SIZE, comment = load_u16(record + 20);
        if (comment > left)
            continue;
        RETURN_IF_ERROR(start_of_archive(&window->file, place, record, &start));
        if (start == NO_MORE || start < ends->floor)
            continue;
        ends->start = start;
        ends->end = place + ZIP_END_SIZE + comment;
        *found = true;
        return DCP_OK;
    }
}
