/* SPDX-License-Identifier: BSD-3-Clause */
/* The zip container that torch.save writes: an index over a byte source, and reading its records.
 *
 * Everything is checked against the source's size; sizes are those of the central directory. */
#ifndef FORMAT_ZIP_H
#define FORMAT_ZIP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/byte_source.h"

struct zip_record {
    const char *name; /* without the top directory; NUL-terminated */
    bool deflated;
    uint32_t crc;
    uint64_t stored_size;
    uint64_t size;
    uint64_t header_offset;
};

struct zip_archive {
    struct byte_source source;
    struct zip_record *records;
    size_t count;
    struct arena arena;
};

/* Reads the end records and the central directory. label goes into messages: "file.distcp at 1024".
 */
dcp_status zip_open(struct byte_source source, struct zip_archive *archive);
void zip_close(struct zip_archive *archive);
/* Compares without case, as PyTorch does. NULL: none. */
const struct zip_record *zip_find(const struct zip_archive *archive, const char *name);
/* Offset in the source of the record's first stored byte; reads and checks the local header. */
dcp_status zip_data_offset(const struct zip_archive *archive, const struct zip_record *record,
                           uint64_t *offset);
/* The whole record, inflated, its CRC checked (a stored 0 with PyTorch's meaning: not computed).
 * More than limit bytes is an error before anything is allocated. bytes: memory_release(). */
dcp_status zip_read(const struct zip_archive *archive, const struct zip_record *record,
                    uint64_t limit, void **bytes);
/* Inflates stored bytes that must give exactly size bytes. */
dcp_status zip_inflate(const void *stored, size_t stored_size, void *bytes, size_t size);
/* Compares and tells the story; verification by whoever read the bytes itself. */
dcp_status zip_check_crc(const char *record, uint32_t stored, uint32_t computed);

#endif
