/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/content_identity.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checksum.h"
#include "base/error.h"

enum { PART = 16384 };

/* Larger contents are not read as a whole. */
#define WHOLE ((uint64_t)16 << 20)
#define END   ((uint64_t)4 << 20)

static dcp_status add_range(content_read read, void *context, uint64_t from, uint64_t to,
                            uint64_t *digest)
{
    unsigned char part[PART];
    while (from < to) {
        size_t size = to - from < PART ? (size_t)(to - from) : PART;
        RETURN_IF_ERROR(read(context, part, size, from));
        const uint64_t both[2] = {*digest, xxh3_64(part, size)};
        *digest = xxh3_64(both, sizeof both);
        from += size;
    }
    return DCP_OK;
}

dcp_status content_identify(content_read read, void *context, uint64_t size,
                            char identity[CONTENT_IDENTITY_SIZE])
{
    uint64_t digest = size, first = size <= WHOLE ? size : END;
    RETURN_IF_ERROR(add_range(read, context, 0, first, &digest));
    if (first < size)
        RETURN_IF_ERROR(add_range(read, context, size - END, size, &digest));
    snprintf(identity, CONTENT_IDENTITY_SIZE, "%" PRIu64 "-%016" PRIx64, size, digest);
    return DCP_OK;
}

static dcp_status read_bytes(void *context, void *bytes, size_t size, uint64_t offset)
{
    const unsigned char *const *from = context;
    memcpy(bytes, *from + offset, size);
    return DCP_OK;
}

void content_identify_bytes(const void *bytes, size_t size, char identity[CONTENT_IDENTITY_SIZE])
{
    const unsigned char *from = bytes;
    content_identify(read_bytes, &from, size, identity);
}
