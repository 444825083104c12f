/* SPDX-License-Identifier: BSD-3-Clause */
/* A box of elements on a device as a stream of bytes, row-major: the next piece is copied while the
 * current one is read. */
#ifndef DEVICE_DEVICE_STREAM_H
#define DEVICE_DEVICE_STREAM_H

#include "device/device_lane.h"
#include "state/box_blocks.h"

struct device_stream {
    struct device_lane *lane;
    const unsigned char *from; /* the box's first element */
    int32_t ndim;
    size_t element_size;
    const int64_t *strides;
    struct box_blocks blocks; /* blocks that are still to be copied */
    size_t sizes[2];          /* bytes in each of the lane's buffers; 0: none */
    int reading;              /* the buffer that is being read */
    size_t position;          /* position in that buffer */
};

/* Starts the first two copies. sizes and strides must stay valid until everything is read, and so
 * must the lane, which only this stream may use. The caller gives the lane back. */
dcp_status device_stream_start(struct device_stream *stream, struct device_lane *lane, int32_t ndim,
                               const int64_t *sizes, size_t element_size, const void *from,
                               const int64_t *strides);
/* Reads the next bytes. The caller must not read more than the box has. */
dcp_status device_stream_read(struct device_stream *stream, void *bytes, size_t size);

#endif
