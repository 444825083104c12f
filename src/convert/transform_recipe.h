/* SPDX-License-Identifier: BSD-3-Clause */
/* Tensors made of others, read range by range. Inputs are copied into the arena. */
#ifndef CONVERT_TRANSFORM_RECIPE_H
#define CONVERT_TRANSFORM_RECIPE_H

#include "convert/convert_source.h"

/* Blocks of each input in turn, of so many elements; an item without name stands for zeros. The
 * item has the dtype of the inputs and gets a recipe; its shape is the caller's. */
dcp_status transform_interleave(struct arena *arena, const struct convert_item *inputs,
                                const int64_t *lengths, size_t count, struct convert_item *item);
/* Of each `total` elements, `length` from an offset on. */
dcp_status transform_slice(struct arena *arena, const struct convert_item *input, int64_t total,
                           int64_t offset, int64_t length, struct convert_item *item);
/* Exchanges rows and columns of matrices of entries of `inner` elements. */
dcp_status transform_swap(struct arena *arena, const struct convert_item *input, int64_t rows,
                          int64_t columns, int64_t inner, struct convert_item *item);
/* Converts elements as dcp_read_options::convert does. */
dcp_status transform_cast(struct arena *arena, const struct convert_item *input, dcp_dtype dtype,
                          struct convert_item *item);

#endif
