/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices over the CUDA runtime: their memory, and the table of what they can do. */
#include "cuda/cuda_device.h"
#include "cuda/visit.h"
#include "dcp/cuda.h"

static dcp_status cuda_allocate(const dcp_device *device, size_t bytes, void **memory)
{
    struct visit visit;
    dcp_status status = visit_begin(&visit, device->index);
    if (status != DCP_OK)
        return status;
    cudaError_t code = cudaMalloc(memory, bytes);
    if (code != cudaSuccess)
        status = cuda_error(code, "cudaMalloc");
    visit_end(&visit);
    return status;
}

static void cuda_release(const dcp_device *device, void *memory)
{
    struct visit visit;
    visit_to_free(&visit, device->index);
    cudaFree(memory);
    visit_end_freeing(&visit);
}

/* Memory that all devices can access counts as this device's. */
static dcp_status cuda_holds(const dcp_device *device, const void *memory, bool *held)
{
    struct cudaPointerAttributes attributes;
    struct visit visit;
    dcp_status status = visit_begin(&visit, device->index);
    if (status != DCP_OK)
        return status;
    cudaError_t code = cudaPointerGetAttributes(&attributes, memory);
    if (code != cudaSuccess)
        status = cuda_error(code, "cudaPointerGetAttributes");
    else
        *held = attributes.type == cudaMemoryTypeManaged ||
                (attributes.type == cudaMemoryTypeDevice && attributes.device == device->index);
    visit_end(&visit);
    return status;
}

dcp_device dcp_cuda_stream(int index, cudaStream_t stream)
{
    static const dcp_device_operations operations = {
        .size_of = sizeof operations,
        .name = "cuda",
        .allocate = cuda_allocate,
        .release = cuda_release,
        .copy_to_host = cuda_copy_to_host,
        .copy_from_host = cuda_copy_from_host,
        .holds = cuda_holds,
        .page_lock = cuda_page_lock,
        .page_unlock = cuda_page_unlock,
        .queue_open = cuda_queue_open,
        .queue_close = cuda_queue_close,
        .event_open = cuda_event_open,
        .event_close = cuda_event_close,
        .event_record = cuda_event_record,
        .event_follow = cuda_event_follow,
        .event_wait = cuda_event_wait,
        .event_reached = cuda_event_reached,
        .start_copy_to_host = cuda_start_copy_to_host,
        .start_copy_from_host = cuda_start_copy_from_host,
    };
    return (dcp_device){.operations = &operations, .index = index, .queue = stream};
}

dcp_device dcp_cuda(int index)
{
    return dcp_cuda_stream(index, NULL);
}
