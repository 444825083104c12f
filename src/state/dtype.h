/* SPDX-License-Identifier: BSD-3-Clause */
/* Which dtypes can be in a checkpoint that is written here. */
#ifndef STATE_DTYPE_H
#define STATE_DTYPE_H

#include <stdbool.h>

#include "dcp/tensor.h"

/* Whether PyTorch 2.13 loads tensors of it: not of bcomplex32, which 2.15 has, nor of bits. */
bool dtype_is_savable(dcp_dtype dtype);

#endif
