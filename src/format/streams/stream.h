/* SPDX-License-Identifier: BSD-3-Clause */
/* The torch.save stream of one item, byte for byte as PyTorch 2.13 writes it: what is written
 * before and after the data.
 *
 * Everything except the data's CRC-32, which follows the data, is known beforehand. */
#ifndef FORMAT_STREAMS_STREAM_H
#define FORMAT_STREAMS_STREAM_H

#include <stdint.h>

#include "base/buffer.h"
#include "dcp/tensor.h"

struct stream_layout {
    uint64_t data_offset; /* of the first data byte in the stream; a multiple of 64 */
    uint64_t data_length;
    uint64_t length; /* of the whole stream */
};

/* Of a dense row-major tensor. Pure; DCP_ERR_UNSUPPORTED for dtypes that DCP cannot save. */
dcp_status stream_tensor_layout(dcp_dtype dtype, int32_t ndim, const int64_t *sizes,
                                struct stream_layout *layout);
/* Appends the bytes in front of the data: exactly layout.data_offset. */
dcp_status stream_tensor_head(struct buffer *out, dcp_dtype dtype, int32_t ndim,
                              const int64_t *sizes);
/* Appends the bytes after the data: exactly length - data_offset - data_length. */
dcp_status stream_tensor_tail(struct buffer *out, dcp_dtype dtype, int32_t ndim,
                              const int64_t *sizes, uint32_t crc);
/* Appends a whole stream around an object's pickle. */
dcp_status stream_object(struct buffer *out, const void *pickle, size_t size);

#endif
