/* SPDX-License-Identifier: BSD-3-Clause */
#include "device/device_stream.h"

#include <string.h>

#include "base/error.h"
#include "device/device_copy.h"

static dcp_status start_next(struct device_stream *stream, int buffer)
{
    struct box_storage block;
    int64_t dense[DCP_MAX_DIMS], start = 0;
    stream->sizes[buffer] = 0;
    if (!box_blocks_next(&stream->blocks, &block))
        return DCP_OK;
    for (int32_t i = 0; i < stream->ndim; i++)
        start += block.offsets[i] * stream->strides[i];
    shape_strides(stream->ndim, block.sizes, dense);
    RETURN_IF_ERROR(device_start_to_host(
        device_lane_queue(stream->lane), stream->ndim, block.sizes, stream->element_size,
        stream->from + start * (int64_t)stream->element_size, stream->strides,
        device_lane_buffer(stream->lane, buffer), dense));
    stream->sizes[buffer] = (size_t)box_volume(box_of(stream->ndim, &block)) * stream->element_size;
    return device_lane_mark(stream->lane, buffer);
}

dcp_status device_stream_start(struct device_stream *stream, struct device_lane *lane, int32_t ndim,
                               const int64_t *sizes, size_t element_size, const void *from,
                               const int64_t *strides)
{
    *stream = (struct device_stream){
        .lane = lane, .from = from, .ndim = ndim, .element_size = element_size, .strides = strides};
    box_blocks_start_bounded(&stream->blocks, ndim, sizes,
                             (int64_t)(DEVICE_LANE_BUFFER / element_size));
    RETURN_IF_ERROR(start_next(stream, 0));
    RETURN_IF_ERROR(start_next(stream, 1));
    return device_lane_wait(lane, 0);
}

dcp_status device_stream_read(struct device_stream *stream, void *bytes, size_t size)
{
    unsigned char *to = bytes;
    while (size > 0) {
        size_t left = stream->sizes[stream->reading] - stream->position;
        size_t taken = size < left ? size : left;
        memcpy(to, device_lane_buffer(stream->lane, stream->reading) + stream->position, taken);
        stream->position += taken;
        to += taken;
        size -= taken;
        if (taken < left)
            continue;
        RETURN_IF_ERROR(start_next(stream, stream->reading));
        stream->reading = 1 - stream->reading;
        stream->position = 0;
        RETURN_IF_ERROR(device_lane_wait(stream->lane, stream->reading));
    }
    return DCP_OK;
}
