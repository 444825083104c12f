/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations that let copies overlap: page-locked memory, streams of our own, events. */
#include "cuda/cuda_device.h"
#include "cuda/visit.h"

/* Ends a visit and returns the result of its one call. */
static dcp_status leave(const struct visit *visit, cudaError_t code, const char *call)
{
    dcp_status status = code == cudaSuccess ? DCP_OK : cuda_error(code, call);
    visit_end(visit);
    return status;
}

/* Portable: page-locked for all devices of the process. */
dcp_status cuda_page_lock(const dcp_device *device, void *host, size_t bytes)
{
    struct visit visit;
    dcp_status status = visit_begin(&visit, device->index);
    if (status != DCP_OK)
        return status;
    return leave(&visit, cudaHostRegister(host, bytes, cudaHostRegisterPortable),
                 "cudaHostRegister");
}

void cuda_page_unlock(const dcp_device *device, void *host)
{
    struct visit visit;
    visit_to_free(&visit, device->index);
    cudaHostUnregister(host);
    visit_end_freeing(&visit);
}

/* The stream has the lowest priority and does not synchronize with the default stream. */
dcp_status cuda_queue_open(const dcp_device *device, void **queue)
{
    struct visit visit;
    cudaStream_t stream = NULL;
    int lowest = 0, highest = 0;
    dcp_status status = visit_begin(&visit, device->index);
    if (status != DCP_OK)
        return status;
    cudaError_t code = cudaDeviceGetStreamPriorityRange(&lowest, &highest);
    if (code == cudaSuccess)
        code = cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, lowest);
    *queue = stream;
    return leave(&visit, code, "making a CUDA stream");
}

void cuda_queue_close(const dcp_device *device, void *queue)
{
    struct visit visit;
    visit_to_free(&visit, device->index);
    cudaStreamDestroy((cudaStream_t)queue);
    visit_end_freeing(&visit);
}

dcp_status cuda_event_open(const dcp_device *device, void **event)
{
    struct visit visit;
    cudaEvent_t made = NULL;
    dcp_status status = visit_begin(&visit, device->index);
    if (status != DCP_OK)
        return status;
    cudaError_t code =
        cudaEventCreateWithFlags(&made, cudaEventDisableTiming | cudaEventBlockingSync);
    *event = made;
    return leave(&visit, code, "cudaEventCreateWithFlags");
}

void cuda_event_close(const dcp_device *device, void *event)
{
    struct visit visit;
    visit_to_free(&visit, device->index);
    cudaEventDestroy((cudaEvent_t)event);
    visit_end_freeing(&visit);
}

dcp_status cuda_event_record(const dcp_device *device, void *event)
{
    struct visit visit;
    dcp_status status = visit_begin(&visit, device->index);
    if (status != DCP_OK)
        return status;
    return leave(&visit, cudaEventRecord((cudaEvent_t)event, (cudaStream_t)device->queue),
                 "cudaEventRecord");
}

dcp_status cuda_event_follow(const dcp_device *device, void *event)
{
    struct visit visit;
    dcp_status status = visit_begin(&visit, device->index);
    if (status != DCP_OK)
        return status;
    return leave(&visit, cudaStreamWaitEvent((cudaStream_t)device->queue, (cudaEvent_t)event, 0),
                 "cudaStreamWaitEvent");
}

dcp_status cuda_event_wait(const dcp_device *device, void *event)
{
    struct visit visit;
    dcp_status status = visit_begin(&visit, device->index);
    if (status != DCP_OK)
        return status;
    return leave(&visit, cudaEventSynchronize((cudaEvent_t)event), "cudaEventSynchronize");
}

dcp_status cuda_event_reached(const dcp_device *device, void *event, bool *reached)
{
    struct visit visit;
    dcp_status status = visit_begin(&visit, device->index);
    if (status != DCP_OK)
        return status;
    cudaError_t code = cudaEventQuery((cudaEvent_t)event);
    *reached = code == cudaSuccess;
    return leave(&visit, code == cudaErrorNotReady ? cudaSuccess : code, "cudaEventQuery");
}
