/* SPDX-License-Identifier: BSD-3-Clause */
/* DTensors in .pt files. */
#ifndef CONVERT_SOURCE_DTENSOR_H
#define CONVERT_SOURCE_DTENSOR_H

#include "dcp/checkpoint.h"
#include "dcp/mesh.h"

struct dtensor {
    int32_t ndim; /* of the whole tensor, as what follows */
    int64_t shape[DCP_MAX_DIMS];
    dcp_layout layout; /* seen from the rank whose part it is */
};

/* What the file says of an entry that was opened with dcp_open_options::local_parts. *found: it is
 * a DTensor. DCP_ERR_UNSUPPORTED for what is not known of them. */
dcp_status dtensor_read(dcp_checkpoint *checkpoint, size_t entry, struct dtensor *tensor,
                        bool *found);

#endif
