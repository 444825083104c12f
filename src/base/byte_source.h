/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes that can be read at any offset. Parsers of large data take one of these instead of a
 * file. */
#ifndef BASE_BYTE_SOURCE_H
#define BASE_BYTE_SOURCE_H

#include <stddef.h>
#include <stdint.h>

#include "dcp/status.h"

/* Bytes of a source. */
struct byte_range {
    uint64_t offset;
    size_t size;
};

/* Gets one of several ranges: bytes of it, valid until it returns, or why they could not be read.
 * The first result that is not DCP_OK ends the reading, and is its own. */
typedef dcp_status (*byte_range_visitor)(void *context, size_t index, const unsigned char *bytes,
                                         dcp_status status);

struct byte_source {
    /* Reads exactly size bytes at offset, or fails with a message. Callers check the range against
     * `size` first. */
    dcp_status (*read)(void *context, uint64_t offset, void *bytes, size_t size);
    /* Has a range in memory of the source, *held, until the next call; NULL where it is better read
     * into its place. May be NULL. */
    dcp_status (*hold)(void *context, uint64_t offset, size_t size, const void **held);
    /* A hint that this range will be read soon. May be NULL. */
    void (*expect)(void *context, uint64_t offset, size_t size);
    /* byte_source_read_ranges(), by several reads at a time. May be NULL. */
    dcp_status (*read_ranges)(void *context, const struct byte_range *ranges, size_t count,
                              unsigned char *room, byte_range_visitor visit, void *visiting);
    void *context;
    uint64_t size;
    /* Smallest number of bytes that the source reads at a time, or 0; gaps smaller than this cost
     * nothing. */
    size_t grain;
    /* Where the source begins in its file: into memory that is aligned as the file, bytes are read
     * fastest. */
    uint64_t place;
};

/* A source over memory. */
struct byte_source byte_source_memory(const void *bytes, size_t size);
/* The address of a range in a source over memory; NULL if the range is outside it, or for any other
 * source. */
const void *byte_source_at(const struct byte_source *source, uint64_t offset, uint64_t size);
/* As source.read, with the range checked against source.size (DCP_ERR_FORMAT). */
dcp_status byte_source_read(const struct byte_source *source, uint64_t offset, void *bytes,
                            size_t size);
/* As source.hold, with the range checked; of a source over memory, the address. *held: NULL if the
 * source does not hold it. */
dcp_status byte_source_hold(const struct byte_source *source, uint64_t offset, size_t size,
                            const void **held);
/* Reads ranges that lie apart, and calls visit with each, in order. room: as large as the largest.
 * Ranges must be inside of the source. */
dcp_status byte_source_read_ranges(const struct byte_source *source,
                                   const struct byte_range *ranges, size_t count,
                                   unsigned char *room, byte_range_visitor visit, void *visiting);

#endif
