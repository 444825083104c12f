/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/quantized_shape.h"

#include <inttypes.h>

#include "base/checked.h"
#include "base/error.h"

/* Blocks of a size that cover a length. */
static int64_t block_count(int64_t length, uint64_t block)
{
    uint64_t whole = (uint64_t)length / block;
    return (int64_t)(whole + ((uint64_t)length % block != 0));
}

dcp_status quantized_shape_set(struct quantized_weight *weight, int32_t ndim, const int64_t *shape)
{
    if (ndim < 2)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "%s: a quantized weight has rows and columns, not %d "
                             "dimensions",
                             weight->name, (int)ndim);
    weight->planes = 1;
    for (int32_t d = 0; d < ndim - 2; d++)
        if (!checked_multiply_i64(weight->planes, shape[d], &weight->planes))
            weight->planes = 0; /* another dimension is 0 */
    weight->rows = shape[ndim - 2];
    weight->columns = shape[ndim - 1];
    return DCP_OK;
}

dcp_status quantized_shape_one_scale(struct quantized_weight *weight)
{
    const struct convert_item *scale = &weight->scale;
    if (scale->ndim > 1 || (scale->ndim == 1 && scale->shape[0] != 1))
        return dcp_error_set(DCP_ERR_FORMAT, "%s: its scale is not one number", weight->name);
    if (!checked_multiply_i64(weight->rows, weight->planes, &weight->rows))
        weight->rows = 0; /* another dimension is 0 */
    weight->planes = 1;
    weight->block_rows = weight->rows > 0 ? weight->rows : 1;
    weight->block_columns = weight->columns > 0 ? weight->columns : 1;
    weight->scale_rows = weight->scale_columns = 1;
    return DCP_OK;
}

bool quantized_shape_has_blocks(const struct quantized_weight *weight, uint64_t height,
                                uint64_t width)
{
    const struct convert_item *scale = &weight->scale, *stored = &weight->weight;
    if (scale->ndim != stored->ndim || scale->ndim < 2)
        return false;
    for (int32_t d = 0; d < scale->ndim - 2; d++)
        if (scale->shape[d] != stored->shape[d])
            return false;
    return scale->shape[scale->ndim - 2] == block_count(weight->rows, height) &&
           scale->shape[scale->ndim - 1] == block_count(weight->columns, width);
}

dcp_status quantized_shape_blocks(struct quantized_weight *weight, uint64_t height, uint64_t width)
{
    const struct convert_item *scale = &weight->scale;
    if (!quantized_shape_has_blocks(weight, height, width))
        return dcp_error_set(DCP_ERR_FORMAT,
                             "%s: of %" PRId64 " rows and %" PRId64 " columns in blocks of %" PRIu64
                             " x %" PRIu64
                             ", it has a scale of %d dimensions whose last is %" PRId64,
                             weight->name, weight->rows, weight->columns, height, width,
                             (int)scale->ndim, scale->ndim > 0 ? scale->shape[scale->ndim - 1] : 0);
    weight->block_rows = (int64_t)height;
    weight->block_columns = (int64_t)width;
    weight->scale_rows = scale->shape[scale->ndim - 2];
    weight->scale_columns = scale->shape[scale->ndim - 1];
    return DCP_OK;
}

dcp_status quantized_shape_packed(const struct quantized_weight *weight)
{
    const struct convert_item *stored = &weight->weight;
    uint64_t bits = weight->bits;
    if (weight->rows < 0 || weight->columns < 0 || (uint64_t)weight->columns > INT64_MAX / 64 ||
        (uint64_t)weight->rows > INT64_MAX / 64)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: weight_shape says %" PRId64 " x %" PRId64,
                             weight->name, weight->rows, weight->columns);
    int64_t words = block_count(weight->columns * (int64_t)bits, 32);
    if (stored->ndim != 2 || stored->shape[0] != weight->rows || stored->shape[1] != words)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "%s: weight_shape says %" PRId64 " x %" PRId64 " numbers of %" PRIu64
                             " bits, which are %" PRId64 " words in a row; it is stored otherwise",
                             weight->name, weight->rows, weight->columns, bits, words);
    return DCP_OK;
}

dcp_status quantized_shape_packed_zeros(const struct quantized_weight *weight)
{
    const struct convert_item *zero = &weight->zero_point;
    if (!weight->has_zero_point)
        return DCP_OK;
    int64_t words = block_count(weight->rows * (int64_t)weight->bits, 32);
    if (zero->ndim != 2 || zero->shape[0] != words || zero->shape[1] != weight->scale_columns)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "%s: its weight_zero_point has not %" PRId64 " x %" PRId64 " words",
                             weight->name, words, weight->scale_columns);
    return DCP_OK;
}
