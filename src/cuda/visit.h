/* SPDX-License-Identifier: BSD-3-Clause */
/* Working on a CUDA device for a moment: the context that was current before, if any, is so again
 * afterwards. cudaSetDevice() would instead make one on a device that the caller may never have
 * used. Part of each library that works with CUDA. */
#ifndef CUDA_VISIT_H
#define CUDA_VISIT_H

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "dcp/status.h"

struct visit {
    CUresult (*set_current)(CUcontext context);
    CUcontext before;
};

/* Only after DCP_OK is visit_end() called, on the same thread. */
dcp_status visit_begin(struct visit *visit, int device);
void visit_end(const struct visit *visit);
/* As visit_begin(), for giving things back, which CUDA does whatever device is current: where this
 * one cannot be made so it is tried all the same, and nobody is told. visit_end_freeing() ends it;
 * the runtime forgets what failed meanwhile. */
void visit_to_free(struct visit *visit, int device);
void visit_end_freeing(const struct visit *visit);

/* The story of a failed call (DCP_ERR_NO_MEMORY, else DCP_ERR_DEVICE); the runtime forgets it. */
dcp_status cuda_error(cudaError_t code, const char *call);

#endif
