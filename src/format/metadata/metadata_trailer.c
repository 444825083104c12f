/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/metadata/metadata_trailer.h"

#include <inttypes.h>
#include <string.h>

#include "base/checksum.h"
#include "base/error.h"
#include "format/metadata/metadata_compact.h"

#define CHECKSUM_MAGIC "\211DCPSUM\n"
#define COMPACT_MAGIC  "\211DCPALL\n"

enum {
    MAGIC_SIZE = sizeof CHECKSUM_MAGIC - 1,
    CHECKSUM_SIZE = MAGIC_SIZE + sizeof(uint64_t),
    COMPACT_EXTRA = 2 * MAGIC_SIZE + sizeof(uint64_t) /* around the compact form */
};

static dcp_status append_compact(const struct metadata *metadata, struct buffer *out)
{
    buffer_append(out, COMPACT_MAGIC, MAGIC_SIZE);
    size_t start = out->size;
    RETURN_IF_ERROR(metadata_compact_append_stored(metadata, out));
    buffer_append_u64(out, out->size - start);
    buffer_append(out, COMPACT_MAGIC, MAGIC_SIZE);
    return DCP_OK;
}

dcp_status metadata_trailer_append(const struct metadata *metadata, size_t start,
                                   struct buffer *out)
{
    RETURN_IF_ERROR(buffer_status(out));
    if (metadata_fits_compact(metadata))
        RETURN_IF_ERROR(append_compact(metadata, out));
    uint64_t sum = xxh3_64(out->data + start, out->size - start);
    buffer_append(out, CHECKSUM_MAGIC, MAGIC_SIZE);
    buffer_append_u64(out, sum);
    return buffer_status(out);
}

static bool is_magic(const void *bytes, const char *magic)
{
    return memcmp(bytes, magic, MAGIC_SIZE) == 0;
}

/* The compact form at the end of so many bytes. */
static void find_compact(const unsigned char *bytes, size_t size, struct metadata_trailer *trailer)
{
    if (size < COMPACT_EXTRA || !is_magic(bytes + size - MAGIC_SIZE, COMPACT_MAGIC))
        return;
    size_t most = size - COMPACT_EXTRA;
    uint64_t length = load_u64(bytes + size - MAGIC_SIZE - sizeof length);
    if (length > most || !is_magic(bytes + most - length, COMPACT_MAGIC))
        return;
    trailer->pickle_size = most - (size_t)length;
    trailer->compact = bytes + trailer->pickle_size + MAGIC_SIZE;
    trailer->compact_size = (size_t)length;
}

dcp_status metadata_trailer_read(const void *bytes, size_t size, struct metadata_trailer *trailer)
{
    *trailer = (struct metadata_trailer){.pickle_size = size};
    if (size < CHECKSUM_SIZE)
        return DCP_OK;
    size_t length = size - CHECKSUM_SIZE;
    const char *end = (const char *)bytes + length;
    if (!is_magic(end, CHECKSUM_MAGIC))
        return DCP_OK;
    uint64_t stored = load_u64(end + MAGIC_SIZE), found = xxh3_64(bytes, length);
    if (stored != found)
        return dcp_error_set(DCP_ERR_CHECKSUM,
                             "metadata: the file is damaged: the checksum of its %zu bytes is "
                             "%016" PRIx64 ", but %016" PRIx64 " is stored",
                             length, found, stored);
    trailer->pickle_size = length;
    find_compact(bytes, length, trailer);
    return DCP_OK;
}

dcp_status metadata_trailer_refuse_damaged(const void *bytes, size_t length, size_t size)
{
    const char *behind = (const char *)bytes + length;
    size_t left = size - length, known = left < MAGIC_SIZE ? left : MAGIC_SIZE;
    bool begins = memcmp(behind, COMPACT_MAGIC, known) == 0 ||
                  (memcmp(behind, CHECKSUM_MAGIC, known) == 0 && left <= CHECKSUM_SIZE);
    if (left == 0 || (!begins && left != CHECKSUM_SIZE))
        return DCP_OK;
    return dcp_error_set(DCP_ERR_FORMAT,
                         "metadata: the file is damaged: no checksum is in the %zu bytes behind "
                         "the pickle, which ends at byte %zu",
                         left, length);
}
