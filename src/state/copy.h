/* SPDX-License-Identifier: BSD-3-Clause */
/* Copying boxes of elements between strided memory, with conversion of dtypes if requested. */
#ifndef STATE_COPY_H
#define STATE_COPY_H

#include <stdbool.h>
#include <stdint.h>

#include "dcp/tensor.h"

/* Copies ndim-dimensional boxes of equal sizes. Strides count elements of the respective dtype, may
 * be 0 or negative at the source. Dense runs are copied by memcpy. Source and destination must not
 * overlap.
 */
void copy_strided(int32_t ndim, const int64_t *sizes, size_t element_size, const void *source,
                  const int64_t *source_strides, void *destination,
                  const int64_t *destination_strides);

/* Whether copy_convert() can: between bool, all integers, f16, bf16, f32, f64, and the fp8 family.
 */
bool copy_can_convert(dcp_dtype from, dcp_dtype to);

/* As copy_strided(), converting each element as PyTorch's Tensor.copy_ does on a CPU: round to
 * nearest even, integers wrap, floats truncate toward zero into integers, anything but zero is
 * true. */
void copy_convert(int32_t ndim, const int64_t *sizes, dcp_dtype from, const void *source,
                  const int64_t *source_strides, dcp_dtype to, void *destination,
                  const int64_t *destination_strides);

/* Reverses the bytes of each component of count dense elements in place (complex numbers swap each
 * half). */
void copy_swap_bytes(dcp_dtype dtype, void *elements, size_t count);

/* Whether two elements share memory, or might: dimensions whose strides do not nest (each at least
 * as long as all shorter ones reach) count as overlapping. */
bool copy_may_overlap(int32_t ndim, const int64_t *sizes, const int64_t *strides);

/* Whether the strides lay the elements out row-major and dense. */
bool copy_is_dense(int32_t ndim, const int64_t *sizes, const int64_t *strides);

#endif
