/* SPDX-License-Identifier: BSD-3-Clause */
#include "stream_part.h"

#include "format/streams/stream.h"

static dcp_status append_part(struct buffer *out, dcp_dtype dtype, int32_t ndim,
                              const int64_t *sizes, const uint32_t *crc)
{
    struct stream_frame frame;
    stream_frame_init(&frame);
    dcp_status status = stream_frame_fit(&frame, dtype, ndim, sizes);
    if (status == DCP_OK && crc)
        stream_frame_seal(&frame, *crc);
    const struct buffer *part = crc ? &frame.tail : &frame.head;
    if (status == DCP_OK) {
        buffer_append(out, part->data, part->size);
        status = buffer_status(out);
    }
    stream_frame_free(&frame);
    return status;
}

dcp_status stream_part_head(struct buffer *out, dcp_dtype dtype, int32_t ndim, const int64_t *sizes)
{
    return append_part(out, dtype, ndim, sizes, NULL);
}

dcp_status stream_part_tail(struct buffer *out, dcp_dtype dtype, int32_t ndim, const int64_t *sizes,
                            uint32_t crc)
{
    return append_part(out, dtype, ndim, sizes, &crc);
}
