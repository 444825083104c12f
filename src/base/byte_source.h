/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes that can be read at any offset: what a parser of large things gets instead of a file. */
#ifndef BASE_BYTE_SOURCE_H
#define BASE_BYTE_SOURCE_H

#include <stddef.h>
#include <stdint.h>

#include "dcp/status.h"

struct byte_source {
    /* Exactly size bytes at offset (inside the source; callers check against size first), or an
     * error with its story. */
    dcp_status (*read)(void *context, uint64_t offset, void *bytes, size_t size);
    /* A range that will be read soon: a hint. NULL where there is nothing to gain. */
    void (*expect)(void *context, uint64_t offset, size_t size);
    void *context;
    uint64_t size;
    /* Bytes that are read at a time, whatever is asked for: gaps of less cost nothing; or 0. */
    size_t grain;
};

/* A source over memory. */
struct byte_source byte_source_memory(const void *bytes, size_t size);
/* Where a range of a source over memory lies; NULL for a range outside, or any other source. */
const void *byte_source_at(const struct byte_source *source, uint64_t offset, uint64_t size);
/* As source.read, with the range checked against source.size (DCP_ERR_FORMAT). */
dcp_status byte_source_read(const struct byte_source *source, uint64_t offset, void *bytes,
                            size_t size);

#endif
