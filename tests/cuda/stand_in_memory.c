/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of devices, page-locked memory of the host, and copies between the two. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/stand_in_order.h"
#include "cuda/stand_in_runtime.h"
#include "device/stand_in.h"

/* Of the host, and page-locked: what only CUDA frees. */
struct host_memory {
    _Alignas(max_align_t) struct host_memory *next;
};

static struct host_memory *host_memory;

/* Host memory of others, page-locked. */
struct locked {
    void *memory;
    size_t size;
    struct locked *next;
};

static struct locked *locked;

static void *host_memory_new(size_t size)
{
    struct host_memory *block = calloc(1, sizeof *block + size);
    if (!block)
        abort();
    pthread_mutex_lock(&runtime.lock);
    block->next = host_memory;
    host_memory = block;
    runtime.made++;
    pthread_mutex_unlock(&runtime.lock);
    return block + 1;
}

static void host_memory_free(void *memory)
{
    if (!memory)
        return;
    struct host_memory *block = (struct host_memory *)memory - 1, **link = &host_memory;
    pthread_mutex_lock(&runtime.lock);
    while (*link != block)
        link = &(*link)->next;
    *link = block->next;
    runtime.made--;
    pthread_mutex_unlock(&runtime.lock);
    free(block);
}

size_t stand_in_cuda_locked(void)
{
    size_t bytes = 0;
    pthread_mutex_lock(&runtime.lock);
    for (struct locked *range = locked; range; range = range->next)
        bytes += range->size;
    pthread_mutex_unlock(&runtime.lock);
    return bytes;
}

cudaError_t cudaHostRegister(void *memory, size_t size, unsigned int flags)
{
    cudaError_t code = runtime_enter(__func__);
    (void)flags;
    if (code != cudaSuccess)
        return code;
    struct locked *range = malloc(sizeof *range);
    if (!range)
        abort();
    pthread_mutex_lock(&runtime.lock);
    *range = (struct locked){memory, size, locked};
    locked = range;
    runtime.made++;
    pthread_mutex_unlock(&runtime.lock);
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *memory)
{
    cudaError_t code = runtime_enter(__func__);
    pthread_mutex_lock(&runtime.lock);
    struct locked **link = &locked;
    while (*link && (*link)->memory != memory)
        link = &(*link)->next;
    struct locked *range = *link;
    if (!range)
        abort();
    *link = range->next;
    runtime.made--;
    pthread_mutex_unlock(&runtime.lock);
    free(range);
    return code;
}

cudaError_t cudaHostAlloc(void **memory, size_t size, unsigned int flags)
{
    cudaError_t code = runtime_enter(__func__);
    (void)flags;
    if (code == cudaSuccess)
        *memory = host_memory_new(size);
    return code;
}

cudaError_t cudaMallocHost(void **memory, size_t size)
{
    return cudaHostAlloc(memory, size, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *memory)
{
    cudaError_t code = runtime_enter(__func__);
    host_memory_free(memory);
    return code;
}

struct rows {
    dcp_device device;
    void *to;
    const void *from;
    size_t to_pitch, from_pitch, width, height;
    enum cudaMemcpyKind kind;
};

static void copy_rows(void *argument)
{
    struct rows *rows = argument;
    const dcp_device_operations *operations = rows->device.operations;
    for (size_t i = 0; i < rows->height; i++) {
        unsigned char *to = (unsigned char *)rows->to + i * rows->to_pitch;
        const unsigned char *from = (const unsigned char *)rows->from + i * rows->from_pitch;
        if (rows->kind == cudaMemcpyDeviceToHost)
            operations->copy_to_host(&rows->device, to, from, rows->width, rows->width, 1);
        else
            operations->copy_from_host(&rows->device, to, rows->width, from, rows->width, 1);
    }
    free(rows);
}

static cudaError_t enqueue(struct rows rows, cudaStream_t handle)
{
    struct CUstream_st *stream = stream_of(handle);
    struct rows *copy = malloc(sizeof *copy);
    if (!copy)
        abort();
    rows.device = stand_in(stream->device);
    *copy = rows;
    bool reads = rows.kind == cudaMemcpyDeviceToHost;
    order_step(stream->number, reads ? rows.from : rows.to, !reads);
    stream_add(stream, copy_rows, copy);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    cudaError_t code = runtime_enter(__func__);
    if (code != cudaSuccess)
        return code;
    return enqueue((struct rows){{0}, to, from, size, size, size, 1, kind}, stream);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind)
{
    cudaError_t code = cudaMemcpyAsync(to, from, size, kind, NULL);
    return code == cudaSuccess ? cudaStreamSynchronize(NULL) : code;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    cudaError_t code = runtime_enter(__func__);
    if (code != cudaSuccess)
        return code;
    if (to_pitch < width || from_pitch < width || to_pitch > (size_t)runtime.max_pitch ||
        from_pitch > (size_t)runtime.max_pitch)
        return cudaErrorInvalidPitchValue;
    return enqueue((struct rows){{0}, to, from, to_pitch, from_pitch, width, height, kind}, stream);
}

struct filling {
    unsigned char *bytes;
    int value;
    size_t size;
};

static void fill(void *argument)
{
    struct filling *filling = argument;
    memset(filling->bytes, filling->value, filling->size);
    free(filling);
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t size, cudaStream_t handle)
{
    cudaError_t code = runtime_enter(__func__);
    if (code != cudaSuccess)
        return code;
    struct CUstream_st *stream = stream_of(handle);
    struct filling *filling = malloc(sizeof *filling);
    if (!filling)
        abort();
    *filling = (struct filling){stand_in_bytes(memory), value, size};
    stand_in_stream_write(stream, memory, fill, filling);
    return cudaSuccess;
}

cudaError_t cudaMemset(void *memory, int value, size_t size)
{
    cudaError_t code = cudaMemsetAsync(memory, value, size, NULL);
    return code == cudaSuccess ? cudaStreamSynchronize(NULL) : code;
}

cudaError_t cudaMalloc(void **memory, size_t size)
{
    cudaError_t code = runtime_enter(__func__);
    if (code == cudaSuccess)
        *memory = stand_in_new(runtime_device(), NULL, size);
    return code;
}

cudaError_t cudaFree(void *memory)
{
    cudaError_t code = runtime_enter(__func__);
    if (memory)
        stand_in_free(memory);
    return code;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *memory)
{
    cudaError_t code = runtime_enter(__func__);
    memset(attributes, 0, sizeof *attributes);
    attributes->type = cudaMemoryTypeUnregistered;
    for (int i = 0; i < STAND_IN_DEVICES && code == cudaSuccess; i++) {
        dcp_device device = stand_in(i);
        bool held = false;
        device.operations->holds(&device, memory, &held);
        if (held) {
            attributes->type = cudaMemoryTypeDevice;
            attributes->device = i;
        }
    }
    return code;
}
