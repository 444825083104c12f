/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams: threads that work in order, and later than they are told. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cuda/stand_in_order.h"
#include "cuda/stand_in_runtime.h"

struct stream_work {
    void (*function)(void *);
    void *argument;
    struct stream_work *next;
};

static cudaStream_t defaults[STAND_IN_DEVICES];

static void *run_stream(void *argument)
{
    struct CUstream_st *stream = argument;
    pthread_mutex_lock(&stream->lock);
    while (stream->first || !stream->ending) {
        struct stream_work *work = stream->first;
        if (!work) {
            pthread_cond_wait(&stream->changed, &stream->lock);
            continue;
        }
        stream->first = work->next;
        stream->busy = true;
        pthread_mutex_unlock(&stream->lock);
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
        work->function(work->argument);
        free(work);
        pthread_mutex_lock(&stream->lock);
        stream->busy = false;
        pthread_cond_broadcast(&stream->changed);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

cudaStream_t stand_in_stream_new(int device)
{
    struct CUstream_st *stream = calloc(1, sizeof *stream);
    if (!stream)
        abort();
    stream->device = device;
    stream->number = order_stream_new();
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->changed, NULL);
    if (pthread_create(&stream->thread, NULL, run_stream, stream) != 0)
        abort();
    return stream;
}

void stand_in_stream_free(cudaStream_t stream)
{
    pthread_mutex_lock(&stream->lock);
    stream->ending = true;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->thread, NULL);
    pthread_cond_destroy(&stream->changed);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

void stream_add(cudaStream_t stream, void (*function)(void *), void *argument)
{
    struct stream_work *work = malloc(sizeof *work);
    if (!work)
        abort();
    *work = (struct stream_work){function, argument, NULL};
    pthread_mutex_lock(&stream->lock);
    if (stream->first)
        stream->last->next = work;
    else
        stream->first = work;
    stream->last = work;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
}

void stand_in_stream_use(cudaStream_t stream, const void *memory, bool writes)
{
    order_step(stream->number, memory, writes);
}

void stand_in_stream_run(cudaStream_t stream, void (*function)(void *), void *argument)
{
    order_step(stream->number, NULL, false);
    stream_add(stream, function, argument);
}

void stand_in_stream_write(cudaStream_t stream, void *memory, void (*function)(void *),
                           void *argument)
{
    stand_in_stream_use(stream, memory, true);
    stand_in_stream_run(stream, function, argument);
}

struct CUstream_st *stream_of(cudaStream_t stream)
{
    int device = runtime_device();
    if (stream && stream->device != device) {
        fprintf(stderr, "stand-in CUDA: a stream of device %d on device %d\n", stream->device,
                device);
        abort();
    }
    if (stream)
        return stream;
    pthread_mutex_lock(&runtime.lock);
    if (!defaults[device])
        defaults[device] = stand_in_stream_new(device);
    stream = defaults[device];
    pthread_mutex_unlock(&runtime.lock);
    return stream;
}

void streams_end(void)
{
    for (int i = 0; i < STAND_IN_DEVICES; i++) {
        if (defaults[i])
            stand_in_stream_free(defaults[i]);
        defaults[i] = NULL;
    }
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    cudaError_t code = runtime_enter(__func__);
    struct CUstream_st *stream = stream_of(handle);
    pthread_mutex_lock(&stream->lock);
    while (stream->first || stream->busy)
        pthread_cond_wait(&stream->changed, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
    struct order order;
    order_record(stream->number, &order);
    order_wait(&order);
    return code;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *lowest, int *highest)
{
    *lowest = 0;
    *highest = -5;
    return runtime_enter(__func__);
}

static cudaError_t create(cudaStream_t *stream, unsigned int flags, int priority)
{
    if (flags != cudaStreamNonBlocking)
        abort();
    *stream = stand_in_stream_new(runtime_device());
    pthread_mutex_lock(&runtime.lock);
    runtime.made++;
    runtime.hasty_streams += priority != 0;
    pthread_mutex_unlock(&runtime.lock);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority)
{
    cudaError_t code = runtime_enter(__func__);
    return code == cudaSuccess ? create(stream, flags, priority) : code;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    cudaError_t code = runtime_enter(__func__);
    return code == cudaSuccess ? create(stream, flags, 0) : code;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    cudaError_t code = runtime_enter(__func__);
    stand_in_stream_free(stream);
    pthread_mutex_lock(&runtime.lock);
    runtime.made--;
    pthread_mutex_unlock(&runtime.lock);
    return code;
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    cudaError_t code = runtime_enter(__func__);
    struct CUstream_st *stream = stream_of(handle);
    pthread_mutex_lock(&stream->lock);
    bool working = stream->first || stream->busy;
    pthread_mutex_unlock(&stream->lock);
    struct order order;
    order_record(stream->number, &order);
    if (!working)
        order_wait(&order);
    return code != cudaSuccess ? code : working ? cudaErrorNotReady : cudaSuccess;
}
