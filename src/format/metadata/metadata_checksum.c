/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/metadata/metadata_checksum.h"

#include <inttypes.h>
#include <string.h>

#include "base/checksum.h"
#include "base/error.h"

#define MAGIC "\211DCPSUM\n"

enum { MAGIC_SIZE = sizeof MAGIC - 1, CHECKSUM_SIZE = MAGIC_SIZE + sizeof(uint64_t) };

void metadata_checksum_append(struct buffer *out, size_t start)
{
    if (out->status != DCP_OK)
        return;
    uint64_t sum = xxh3_64(out->data + start, out->size - start);
    buffer_append(out, MAGIC, MAGIC_SIZE);
    buffer_append_u64(out, sum);
}

dcp_status metadata_checksum_compare(const void *bytes, size_t *size)
{
    if (*size < CHECKSUM_SIZE)
        return DCP_OK;
    size_t length = *size - CHECKSUM_SIZE;
    const char *end = (const char *)bytes + length;
    if (memcmp(end, MAGIC, MAGIC_SIZE) != 0)
        return DCP_OK;
    uint64_t stored = load_u64(end + MAGIC_SIZE), found = xxh3_64(bytes, length);
    if (stored != found)
        return dcp_error_set(DCP_ERR_CHECKSUM,
                             "metadata: the file is damaged: the checksum of its %zu bytes is "
                             "%016" PRIx64 ", but %016" PRIx64 " is stored",
                             length, found, stored);
    *size = length;
    return DCP_OK;
}

dcp_status metadata_checksum_refuse_damaged(const void *bytes, size_t length, size_t size)
{
    size_t behind = size - length, known = behind < MAGIC_SIZE ? behind : MAGIC_SIZE;
    bool begins = memcmp((const char *)bytes + length, MAGIC, known) == 0;
    if (behind == 0 || behind > CHECKSUM_SIZE || (behind < CHECKSUM_SIZE && !begins))
        return DCP_OK;
    return dcp_error_set(DCP_ERR_FORMAT,
                         "metadata: the file is damaged: no checksum is in the %zu bytes behind "
                         "the pickle, which ends at byte %zu",
                         behind, length);
}
