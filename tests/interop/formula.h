/* SPDX-License-Identifier: BSD-3-Clause */
/* Tensor contents that follow from a tensor's name and an element's position alone, so that any
 * rank can write its part, and anyone can tell what the whole must be. */
#ifndef INTEROP_FORMULA_H
#define INTEROP_FORMULA_H

#include <dcp.h>

size_t tensor_elements(int32_t ndim, const int64_t *sizes);

/* Fills the memory of a chunk (its `sizes`, `offsets`, `strides`) with what belongs there. */
void formula_fill(const char *name, const dcp_tensor *chunk);

#endif
