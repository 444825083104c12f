/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/byte_source.h"

#include <inttypes.h>
#include <string.h>

static dcp_status memory_read(void *context, uint64_t offset, void *bytes, size_t size)
{
    if (size != 0)
        memcpy(bytes, (const unsigned char *)context + offset, size);
    return DCP_OK;
}

struct byte_source byte_source_memory(const void *bytes, size_t size)
{
    return (struct byte_source){.read = memory_read, .context = (void *)bytes, .size = size};
}

const void *byte_source_at(const struct byte_source *source, uint64_t offset, uint64_t size)
{
    if (source->read != memory_read || offset > source->size || size > source->size - offset)
        return NULL;
    return (const unsigned char *)source->context + offset;
}

dcp_status byte_source_read(const struct byte_source *source, uint64_t offset, void *bytes,
                            size_t size)
{
    if (offset > source->size || size > source->size - offset)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "cannot read %zu bytes at offset %" PRIu64
                             ": the data ends at %" PRIu64,
                             size, offset, source->size);
    return source->read(source->context, offset, bytes, size);
}
