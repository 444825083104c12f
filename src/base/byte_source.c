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

static dcp_status check_range(const struct byte_source *source, uint64_t offset, size_t size)
{
    if (offset <= source->size && size <= source->size - offset)
        return DCP_OK;
    return dcp_error_set(DCP_ERR_FORMAT,
                         "cannot read %zu bytes at offset %" PRIu64 ": the data ends at %" PRIu64,
                         size, offset, source->size);
}

dcp_status byte_source_read(const struct byte_source *source, uint64_t offset, void *bytes,
                            size_t size)
{
    dcp_status status = check_range(source, offset, size);
    return status == DCP_OK ? source->read(source->context, offset, bytes, size) : status;
}

dcp_status byte_source_hold(const struct byte_source *source, uint64_t offset, size_t size,
                            const void **held)
{
    dcp_status status = check_range(source, offset, size);
    *held = status == DCP_OK ? byte_source_at(source, offset, size) : NULL;
    if (status != DCP_OK || *held || !source->hold)
        return status;
    return source->hold(source->context, offset, size, held);
}

dcp_status byte_source_read_ranges(const struct byte_source *source,
                                   const struct byte_range *ranges, size_t count,
                                   unsigned char *room, byte_range_visitor visit, void *visiting)
{
    dcp_status status = DCP_OK;
    if (source->read_ranges)
        return source->read_ranges(source->context, ranges, count, room, visit, visiting);
    for (size_t i = 0; i < count && status == DCP_OK; i++) {
        status = source->read(source->context, ranges[i].offset, room, ranges[i].size);
        status = visit(visiting, i, status == DCP_OK ? room : NULL, status);
    }
    return status;
}
