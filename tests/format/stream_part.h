/* SPDX-License-Identifier: BSD-3-Clause */
/* What surrounds the data in a tensor's stream, for tests that put a stream together. */
#ifndef TESTS_FORMAT_STREAM_PART_H
#define TESTS_FORMAT_STREAM_PART_H

#include "base/buffer.h"
#include "dcp/tensor.h"

/* Appends the bytes in front of the data. */
dcp_status stream_part_head(struct buffer *out, dcp_dtype dtype, int32_t ndim,
                            const int64_t *sizes);
/* Appends the bytes behind the data, which have this CRC-32. */
dcp_status stream_part_tail(struct buffer *out, dcp_dtype dtype, int32_t ndim, const int64_t *sizes,
                            uint32_t crc);

#endif
