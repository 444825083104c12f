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
#include "format/streams/stream_records.h"

struct stream_layout {
    uint64_t data_offset; /* of the first data byte in the stream; a multiple of 64 */
    uint64_t data_length;
    uint64_t length; /* of the whole stream */
};

/* Of a dense row-major tensor. Pure; DCP_ERR_UNSUPPORTED for dtypes that DCP cannot save. */
dcp_status stream_tensor_layout(dcp_dtype dtype, int32_t ndim, const int64_t *sizes,
                                struct stream_layout *layout);
/* What surrounds the data of tensors of one dtype and shape, which differ by their CRC alone: made
 * for the first of them, it serves all that follow. Stays where it is. */
struct stream_frame {
    dcp_dtype dtype; /* DCP_DTYPE_NONE: it fits none yet */
    int32_t ndim;
    int64_t sizes[DCP_MAX_DIMS];
    struct stream_layout layout;
    struct buffer head; /* the bytes in front of the data: layout.data_offset */
    struct buffer tail; /* the rest of the stream, behind the data, of the tensor that it was sealed
                           for last */
    struct stream_records records;
    struct stream_record items[STREAM_RECORDS_FEW];
};

void stream_frame_init(struct stream_frame *frame);
/* Makes it for such tensors, unless that is what it is for. Errors as of stream_tensor_layout(). */
dcp_status stream_frame_fit(struct stream_frame *frame, dcp_dtype dtype, int32_t ndim,
                            const int64_t *sizes);
/* Makes the tail that of a tensor whose data has this CRC-32. */
void stream_frame_seal(struct stream_frame *frame, uint32_t crc);
void stream_frame_free(struct stream_frame *frame);

/* Appends a whole stream around an object's pickle. */
dcp_status stream_object(struct buffer *out, const void *pickle, size_t size);

#endif
