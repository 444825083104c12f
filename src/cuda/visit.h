/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes a CUDA device current for a moment, and restores the previous context, if any.
 * cudaSetDevice() would instead create a context on a device that the caller may never have used.
 * Part of each library that uses CUDA. */
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
/* As visit_begin(), for freeing, which CUDA does whatever device is current: if this one cannot be
 * made current, the caller frees all the same, and no error is reported. visit_end_freeing() ends
 * it, and clears the runtime's last error. */
void visit_to_free(struct visit *visit, int device);
void visit_end_freeing(const struct visit *visit);

/* Sets the error of a failed call (DCP_ERR_NO_MEMORY, else DCP_ERR_DEVICE), and clears the
 * runtime's last error. */
dcp_status cuda_error(cudaError_t code, const char *call);

#endif
