/* SPDX-License-Identifier: BSD-3-Clause */
#include "cuda/visit.h"

/* The first version of CUDA that had the driver's functions for the current context. */
enum { CURRENT_CONTEXT_VERSION = 4000 };

dcp_status cuda_error(cudaError_t code, const char *call)
{
    cudaGetLastError();
    return dcp_error_set(code == cudaErrorMemoryAllocation ? DCP_ERR_NO_MEMORY : DCP_ERR_DEVICE,
                         "%s failed: %s", call, cudaGetErrorString(code));
}

static dcp_status find_driver_function(const char *name, void **function)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    *function = NULL;
    cudaError_t code = cudaGetDriverEntryPointByVersion(name, function, CURRENT_CONTEXT_VERSION,
                                                        cudaEnableDefault, &found);
    if (code != cudaSuccess)
        return cuda_error(code, "looking into the CUDA driver");
    if (found != cudaDriverEntryPointSuccess || *function == NULL)
        return dcp_error_set(DCP_ERR_DEVICE, "the CUDA driver lacks %s", name);
    return DCP_OK;
}

void visit_end(const struct visit *visit)
{
    visit->set_current(visit->before);
}

dcp_status visit_begin(struct visit *visit, int device)
{
    void *get = NULL, *set = NULL;
    dcp_status status = find_driver_function("cuCtxGetCurrent", &get);
    if (status == DCP_OK)
        status = find_driver_function("cuCtxSetCurrent", &set);
    if (status != DCP_OK)
        return status;
    visit->set_current = (CUresult(*)(CUcontext))set;
    visit->before = NULL;
    if (((CUresult(*)(CUcontext *))get)(&visit->before) != CUDA_SUCCESS)
        visit->before = NULL;
    cudaError_t code = cudaSetDevice(device);
    if (code == cudaSuccess)
        return DCP_OK;
    visit_end(visit);
    return cuda_error(code, "cudaSetDevice");
}
