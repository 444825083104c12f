/* SPDX-License-Identifier: BSD-3-Clause */
/* The sizes of a quantized weight, from those of what is stored, which are checked against each
 * other. All errors are DCP_ERR_FORMAT. */
#ifndef CONVERT_QUANTIZED_SHAPE_H
#define CONVERT_QUANTIZED_SHAPE_H

#include "convert/quantized_weight.h"

/* Takes planes, rows and columns of a shape of at least two dimensions. */
dcp_status quantized_shape_set(struct quantized_weight *weight, int32_t ndim, const int64_t *shape);
/* One scale for all of the weight. */
dcp_status quantized_shape_one_scale(struct quantized_weight *weight);
/* A scale for each block, smaller ones at the ends. Sides are at least 1. */
dcp_status quantized_shape_blocks(struct quantized_weight *weight, uint64_t height, uint64_t width);
/* Whether the scale has the shape of such blocks. */
bool quantized_shape_has_blocks(const struct quantized_weight *weight, uint64_t height,
                                uint64_t width);
/* Checks words of packed numbers against rows, columns and bits, which may be any; and those of
 * zero points, when the scales are set. */
dcp_status quantized_shape_packed(const struct quantized_weight *weight);
dcp_status quantized_shape_packed_zeros(const struct quantized_weight *weight);

#endif
