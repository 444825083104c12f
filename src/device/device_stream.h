/* SPDX-License-Identifier: BSD-3-Clause */
/* A box of elements on a device as a stream of bytes, row-major: the next piece is copied while the
 * one before it is read. */
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
    struct box_blocks blocks; /* that are still to be copied */
    size_t sizes[2];          /* bytes in each of the lane's buffers; 0: none */
    int reading;              /* the buffer that is being read */
    size_t position;          /* in it */
};

/* Starts the first two copies. sizes and strides stay until all is read, and so does the lane,
 * which is for the stream alone and is given back by whoever took it. */
dcp_status device_stream_start(struct device_stream *stream, struct device_lane *lane, int32_t ndim,
                               const int64_t *sizes, size_t element_size, const void *from,
                               const int64_t *strides);
/* The next bytes, of as many as the box has in all. */
dcp_status device_stream_read(struct device_stream *stream, void *bytes, size_t size);

#endif
