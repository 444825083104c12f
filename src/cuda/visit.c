/* SPDX-License-Identifier: BSD-3-Clause */
#include "cuda/visit.h"

/* The first version of CUDA that had the driver's functions for the current context. */
enum { CURRENT_CONTEXT_VERSION = 4000 };

/* Why a visit could not begin. */
struct obstacle {
    cudaError_t code; /* cudaSuccess: the driver lacks the function */
    const char *call; /* that failed; NULL: none did */
};

dcp_status cuda_error(cudaError_t code, const char *call)
{
    cudaGetLastError();
    return dcp_error_set(code == cudaErrorMemoryAllocation ? DCP_ERR_NO_MEMORY : DCP_ERR_DEVICE,
                         "%s failed: %s", call, cudaGetErrorString(code));
}

static struct obstacle find_driver_function(const char *name, void **function)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    *function = NULL;
    cudaError_t code = cudaGetDriverEntryPointByVersion(name, function, CURRENT_CONTEXT_VERSION,
                                                        cudaEnableDefault, &found);
    if (code != cudaSuccess)
        return (struct obstacle){code, "opening the CUDA driver"};
    if (found != cudaDriverEntryPointSuccess || *function == NULL)
        return (struct obstacle){cudaSuccess, name};
    return (struct obstacle){0};
}

static struct obstacle begin(struct visit *visit, int device)
{
    void *get = NULL, *set = NULL;
    struct obstacle obstacle = find_driver_function("cuCtxGetCurrent", &get);
    visit->set_current = NULL;
    if (obstacle.call == NULL)
        obstacle = find_driver_function("cuCtxSetCurrent", &set);
    if (obstacle.call != NULL)
        return obstacle;
    visit->set_current = (CUresult(*)(CUcontext))set;
    visit->before = NULL;
    if (((CUresult(*)(CUcontext *))get)(&visit->before) != CUDA_SUCCESS)
        visit->before = NULL;
    cudaError_t code = cudaSetDevice(device);
    return (struct obstacle){code, code == cudaSuccess ? NULL : "cudaSetDevice"};
}

void visit_end(const struct visit *visit)
{
    if (visit->set_current != NULL)
        visit->set_current(visit->before);
}

dcp_status visit_begin(struct visit *visit, int device)
{
    struct obstacle obstacle = begin(visit, device);
    if (obstacle.call == NULL)
        return DCP_OK;
    visit_end(visit);
    if (obstacle.code == cudaSuccess)
        return dcp_error_set(DCP_ERR_DEVICE, "the CUDA driver lacks %s", obstacle.call);
    return cuda_error(obstacle.code, obstacle.call);
}

void visit_to_free(struct visit *visit, int device)
{
    begin(visit, device);
}

void visit_end_freeing(const struct visit *visit)
{
    cudaGetLastError();
    visit_end(visit);
}
