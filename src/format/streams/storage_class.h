/* SPDX-License-Identifier: BSD-3-Clause */
/* The Python classes by which a pickle names the storages of tensors. */
#ifndef FORMAT_STREAMS_STORAGE_CLASS_H
#define FORMAT_STREAMS_STORAGE_CLASS_H

#include "dcp/tensor.h"

/* The class in "torch", such as "FloatStorage"; NULL for dtypes that have none: their storages are
 * "torch.storage.UntypedStorage". */
const char *storage_class_name(dcp_dtype dtype);
/* DCP_DTYPE_NONE if there is no such class. */
dcp_dtype storage_class_dtype(const char *name, size_t length);

#endif
