/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies on a stream, waited for or not. */
#include "cuda/cuda_device.h"
#include "cuda/visit.h"

/* One copy of many rows, with the distances between rows. */
struct rows {
    unsigned char *to;
    const unsigned char *from;
    size_t to_pitch, from_pitch, width, height;
    enum cudaMemcpyKind kind;
};

/* Rows that are further apart than the device supports are copied one by one. */
static cudaError_t enqueue(const struct rows *rows, int index, cudaStream_t stream)
{
    size_t pitch = rows->to_pitch > rows->from_pitch ? rows->to_pitch : rows->from_pitch;
    if (rows->height == 1 || pitch == rows->width)
        return cudaMemcpyAsync(rows->to, rows->from, rows->width * rows->height, rows->kind,
                               stream);
    int most = 0;
    cudaError_t code = cudaDeviceGetAttribute(&most, cudaDevAttrMaxPitch, index);
    if (code == cudaSuccess && pitch <= (size_t)most)
        return cudaMemcpy2DAsync(rows->to, rows->to_pitch, rows->from, rows->from_pitch,
                                 rows->width, rows->height, rows->kind, stream);
    for (size_t i = 0; i < rows->height && code == cudaSuccess; i++)
        code = cudaMemcpyAsync(rows->to + i * rows->to_pitch, rows->from + i * rows->from_pitch,
                               rows->width, rows->kind, stream);
    return code;
}

static dcp_status copy(const dcp_device *device, const struct rows *rows, bool wait)
{
    cudaStream_t stream = (cudaStream_t)device->queue;
    struct visit visit;
    dcp_status status = visit_begin(&visit, device->index);
    if (status != DCP_OK)
        return status;
    cudaError_t enqueued = enqueue(rows, device->index, stream);
    /* Even after a failure: a part may be under way to memory that the caller will reuse. */
    cudaError_t done = wait ? cudaStreamSynchronize(stream) : cudaSuccess;
    if (enqueued != cudaSuccess)
        status = cuda_error(enqueued, "a CUDA copy");
    else if (done != cudaSuccess)
        status = cuda_error(done, "cudaStreamSynchronize");
    visit_end(&visit);
    return status;
}

static struct rows rows_to_host(void *host, const void *memory, size_t pitch, size_t width,
                                size_t height)
{
    return (struct rows){host, memory, width, pitch, width, height, cudaMemcpyDeviceToHost};
}

static struct rows rows_from_host(void *memory, size_t pitch, const void *host, size_t width,
                                  size_t height)
{
    return (struct rows){memory, host, pitch, width, width, height, cudaMemcpyHostToDevice};
}

dcp_status cuda_copy_to_host(const dcp_device *device, void *host, const void *memory, size_t pitch,
                             size_t width, size_t height)
{
    struct rows rows = rows_to_host(host, memory, pitch, width, height);
    return copy(device, &rows, true);
}

dcp_status cuda_copy_from_host(const dcp_device *device, void *memory, size_t pitch,
                               const void *host, size_t width, size_t height)
{
    struct rows rows = rows_from_host(memory, pitch, host, width, height);
    return copy(device, &rows, true);
}

dcp_status cuda_start_copy_to_host(const dcp_device *device, void *host, const void *memory,
                                   size_t pitch, size_t width, size_t height)
{
    struct rows rows = rows_to_host(host, memory, pitch, width, height);
    return copy(device, &rows, false);
}

dcp_status cuda_start_copy_from_host(const dcp_device *device, void *memory, size_t pitch,
                                     const void *host, size_t width, size_t height)
{
    struct rows rows = rows_from_host(memory, pitch, host, width, height);
    return copy(device, &rows, false);
}
