/* SPDX-License-Identifier: BSD-3-Clause */
/* The zip container that torch.save writes: an index over a byte source, and reading its records.
 *
 * Everything is checked against the source's size. Sizes come from the central directory.
 * Opening takes one read of a small source and two of a large one (both of its ends, which hold all
 * that a tensor's stream has besides its data); records that lie in what was read cost no further
 * read. An open archive is not changed by reading: threads may share it. */
#ifndef FORMAT_ZIP_ZIP_H
#define FORMAT_ZIP_ZIP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/byte_source.h"
#include "base/name_table.h"

#define ZIP_NAME_MAX 255 /* longest record name that zip_find() finds */

struct zip_record {
    const char *name; /* below the top directory, in lower case; NUL-terminated */
    bool deflated;
    uint32_t crc; /* of the contents; 0: perhaps not computed by the writer */
    uint64_t stored_size;
    uint64_t size;
    uint64_t header_offset;
    uint64_t data_offset; /* 0: zip_data_offset() reads the local header */
};

/* Bytes of the source that were read on opening, or were in memory already. */
struct zip_window {
    const unsigned char *bytes;
    uint64_t offset;
    size_t size;
};

struct zip_archive {
    struct byte_source source;
    struct zip_record *records; /* below the top directory, as the central directory lists them */
    size_t count;
    bool bare;       /* records have no headers: header_offset is that of the data */
    bool big_endian; /* byte order of the storages */
    uint64_t directory_offset;
    struct name_table by_name;
    struct zip_window head, tail;
    struct arena arena;
};

/* Reads the end records, the central directory, and the records that say what torch.save wrote:
 * version (1 to 10), byteorder, .storage_alignment. Encrypted, multi-disk and TorchScript archives
 * and unknown compression methods are DCP_ERR_UNSUPPORTED. */
dcp_status zip_open(struct byte_source source, struct zip_archive *archive);
void zip_close(struct zip_archive *archive);
/* Records that lie in a source without a container, whose names, places and sizes are known: at
 * most `most` are added. zip_close() also after a failure. */
dcp_status zip_open_bare(struct byte_source source, size_t most, struct zip_archive *archive);
/* The range is inside of the source, and has no checksum. DCP_ERR_FORMAT if there is one of the
 * name. */
dcp_status zip_add_bare(struct zip_archive *archive, const char *name, uint64_t offset,
                        uint64_t size);
/* Ignores case, as PyTorch does. NULL: none. */
const struct zip_record *zip_find(const struct zip_archive *archive, const char *name);
/* Reads and checks the local headers of all records, for zip_data_offset(): at once where they are
 * near each other, and several such reads at a time. A header that is wrong fails zip_data_offset()
 * alone. */
dcp_status zip_locate(struct zip_archive *archive);
/* Offset in the source of the record's first stored byte; reads and checks the local header, unless
 * zip_locate() has. */
dcp_status zip_data_offset(const struct zip_archive *archive, const struct zip_record *record,
                           uint64_t *offset);
/* The whole record, inflated, its CRC checked (a stored 0 with PyTorch's meaning: not computed).
 * More than limit bytes is an error before anything is allocated. bytes: memory_release(). */
dcp_status zip_read(const struct zip_archive *archive, const struct zip_record *record,
                    uint64_t limit, void **bytes);
/* The same, but avoids the copy if possible: then *bytes points into the archive and *memory is
 * NULL. The caller releases *memory in any case. */
dcp_status zip_look(const struct zip_archive *archive, const struct zip_record *record,
                    uint64_t limit, const void **bytes, void **memory);
/* Limits on inflated sizes: this much, or this many times the deflated bytes. Real checkpoints stay
 * far below; a hostile file could otherwise claim all memory with a few bytes. */
#define ZIP_INFLATED_BASE  ((uint64_t)64 << 20)
#define ZIP_INFLATED_TIMES 64

/* DCP_ERR_FORMAT if deflated bytes claim a larger inflated size. */
dcp_status zip_check_inflated(const char *record, uint64_t stored_size, uint64_t size);

/* Inflates stored bytes that must give exactly size bytes. */
dcp_status zip_inflate(const void *stored, size_t stored_size, void *bytes, size_t size);
/* Compares CRCs and sets the error. For callers that have read the bytes themselves. */
dcp_status zip_check_crc(const char *record, uint32_t stored, uint32_t computed);

#endif
