/* SPDX-License-Identifier: BSD-3-Clause */
#include "cuda/stand_in_cuda.h"

#include <cuda.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda/stand_in_order.h"
#include "device/stand_in.h"

struct work {
    void (*function)(void *);
    void *argument;
    struct work *next;
};

struct CUstream_st {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct work *first, *last;
    bool busy, ending;
    int device;
    int number; /* of its order */
};

struct call {
    const char *name;
    long count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct call calls[64];
static long streams_made, events_made, hasty_streams;
static bool contexts[STAND_IN_DEVICES];
static cudaStream_t defaults[STAND_IN_DEVICES];
static const char *failing_name = "";
static long failing_call;
static cudaError_t failing_code;
static int max_pitch;
static char handles[STAND_IN_DEVICES]; /* a context is the address of one of these */
static _Thread_local CUcontext current;
static _Thread_local cudaError_t last_error;

/* ---- host memory that only CUDA frees ---- */

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
    pthread_mutex_lock(&lock);
    block->next = host_memory;
    host_memory = block;
    pthread_mutex_unlock(&lock);
    return block + 1;
}

static void host_memory_free(void *memory)
{
    if (!memory)
        return;
    struct host_memory *block = (struct host_memory *)memory - 1, **link = &host_memory;
    pthread_mutex_lock(&lock);
    while (*link != block)
        link = &(*link)->next;
    *link = block->next;
    pthread_mutex_unlock(&lock);
    free(block);
}

long stand_in_cuda_host_blocks(void)
{
    long count = 0;
    pthread_mutex_lock(&lock);
    for (struct host_memory *block = host_memory; block; block = block->next)
        count++;
    for (struct locked *range = locked; range; range = range->next)
        count++;
    count += streams_made + events_made;
    pthread_mutex_unlock(&lock);
    return count;
}

size_t stand_in_cuda_locked(void)
{
    size_t bytes = 0;
    pthread_mutex_lock(&lock);
    for (struct locked *range = locked; range; range = range->next)
        bytes += range->size;
    pthread_mutex_unlock(&lock);
    return bytes;
}

long stand_in_hasty_streams(void)
{
    return hasty_streams;
}

/* ---- what tests ask ---- */

static struct call *call_named(const char *name)
{
    struct call *call = calls;
    while (call->name && strcmp(call->name, name) != 0)
        call++;
    call->name = name;
    return call;
}

/* Every function of the runtime passes here first. */
static cudaError_t enter(const char *name)
{
    pthread_mutex_lock(&lock);
    struct call *call = call_named(name);
    call->count++;
    bool fails = strcmp(name, failing_name) == 0 && --failing_call == 0;
    if (fails)
        last_error = failing_code;
    pthread_mutex_unlock(&lock);
    return fails ? failing_code : cudaSuccess;
}

void stand_in_cuda_begin(void)
{
    memset(calls, 0, sizeof calls);
    memset(contexts, 0, sizeof contexts);
    failing_name = "";
    max_pitch = 1 << 30;
    hasty_streams = 0;
    order_begin();
    current = NULL;
    last_error = cudaSuccess;
    stand_in_reset(0, 0);
}

void stand_in_cuda_end(void)
{
    for (int i = 0; i < STAND_IN_DEVICES; i++) {
        if (defaults[i])
            stand_in_stream_free(defaults[i]);
        defaults[i] = NULL;
    }
}

bool stand_in_has_context(int device)
{
    pthread_mutex_lock(&lock);
    bool has = contexts[device];
    pthread_mutex_unlock(&lock);
    return has;
}

static void make_context(int device)
{
    pthread_mutex_lock(&lock);
    contexts[device] = true;
    pthread_mutex_unlock(&lock);
}

int stand_in_current(void)
{
    return current ? (int)((char *)current - handles) : -1;
}

void stand_in_set_current(int device)
{
    current = device < 0 ? NULL : (CUcontext)(void *)&handles[device];
}

void stand_in_cuda_fail(const char *function, long n, cudaError_t code)
{
    failing_name = n > 0 ? function : "";
    failing_call = n;
    failing_code = code;
}

void stand_in_cuda_max_pitch(int bytes)
{
    max_pitch = bytes;
}

long stand_in_cuda_calls(const char *function)
{
    pthread_mutex_lock(&lock);
    long count = call_named(function)->count;
    pthread_mutex_unlock(&lock);
    return count;
}

/* ---- streams ---- */

static void *run_stream(void *argument)
{
    struct CUstream_st *stream = argument;
    pthread_mutex_lock(&stream->lock);
    while (stream->first || !stream->ending) {
        struct work *work = stream->first;
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

static void add_work(cudaStream_t stream, void (*function)(void *), void *argument)
{
    struct work *work = malloc(sizeof *work);
    if (!work)
        abort();
    *work = (struct work){function, argument, NULL};
    pthread_mutex_lock(&stream->lock);
    if (stream->first)
        stream->last->next = work;
    else
        stream->first = work;
    stream->last = work;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
}

void stand_in_stream_write(cudaStream_t stream, void *memory, void (*function)(void *),
                           void *argument)
{
    order_step(stream->number, memory, true);
    add_work(stream, function, argument);
}

void stand_in_stream_run(cudaStream_t stream, void (*function)(void *), void *argument)
{
    stand_in_stream_write(stream, NULL, function, argument);
}

/* NULL is the default stream of the current device. */
static struct CUstream_st *stream_of(cudaStream_t stream)
{
    int device = stand_in_current();
    if (device < 0)
        device = 0;
    make_context(device);
    if (stream && stream->device != device) {
        fprintf(stderr, "stand-in CUDA: a stream of device %d on device %d\n", stream->device,
                device);
        abort();
    }
    if (stream)
        return stream;
    pthread_mutex_lock(&lock);
    if (!defaults[device])
        defaults[device] = stand_in_stream_new(device);
    stream = defaults[device];
    pthread_mutex_unlock(&lock);
    return stream;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    cudaError_t code = enter(__func__);
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
    return enter(__func__);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority)
{
    cudaError_t code = enter(__func__);
    if (code != cudaSuccess)
        return code;
    if (flags != cudaStreamNonBlocking)
        abort();
    int device = stand_in_current();
    make_context(device);
    *stream = stand_in_stream_new(device);
    pthread_mutex_lock(&lock);
    streams_made++;
    hasty_streams += priority != 0;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    cudaError_t code = enter(__func__);
    stand_in_stream_free(stream);
    pthread_mutex_lock(&lock);
    streams_made--;
    pthread_mutex_unlock(&lock);
    return code;
}

/* ---- events ---- */

struct CUevent_st {
    /* How often; a record that streams came to is as good as those before. */
    long recorded, reached;
    long references; /* the library's, and records: events may be destroyed before these */
    struct order order;
};

/* A record of an event, for streams to come to or to wait for: later ones do not matter to it. */
struct record {
    struct CUevent_st *event;
    long number;
};

static pthread_cond_t event_changed = PTHREAD_COND_INITIALIZER;

static struct record *record_new(struct CUevent_st *event, bool further)
{
    struct record *record = malloc(sizeof *record);
    if (!record)
        abort();
    pthread_mutex_lock(&lock);
    event->recorded += further;
    event->references++;
    *record = (struct record){event, event->recorded};
    pthread_mutex_unlock(&lock);
    return record;
}

/* With the lock held. */
static void record_free(struct record *record)
{
    if (--record->event->references == 0)
        free(record->event);
    free(record);
}

static void event_reached(void *argument)
{
    struct record *record = argument;
    pthread_mutex_lock(&lock);
    if (record->event->reached < record->number)
        record->event->reached = record->number;
    pthread_cond_broadcast(&event_changed);
    record_free(record);
    pthread_mutex_unlock(&lock);
}

static void event_await(void *argument)
{
    struct record *record = argument;
    pthread_mutex_lock(&lock);
    while (record->event->reached < record->number)
        pthread_cond_wait(&event_changed, &lock);
    record_free(record);
    pthread_mutex_unlock(&lock);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    cudaError_t code = enter(__func__);
    (void)flags;
    if (code != cudaSuccess)
        return code;
    *event = calloc(1, sizeof **event);
    if (!*event)
        abort();
    (*event)->references = 1;
    pthread_mutex_lock(&lock);
    events_made++;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    cudaError_t code = enter(__func__);
    pthread_mutex_lock(&lock);
    events_made--;
    if (--event->references == 0)
        free(event);
    pthread_mutex_unlock(&lock);
    return code;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle)
{
    cudaError_t code = enter(__func__);
    if (code != cudaSuccess)
        return code;
    struct CUstream_st *stream = stream_of(handle);
    order_step(stream->number, NULL, false);
    order_record(stream->number, &event->order);
    add_work(stream, event_reached, record_new(event, true));
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned int flags)
{
    cudaError_t code = enter(__func__);
    if (code != cudaSuccess)
        return code;
    if (flags != 0)
        abort();
    struct CUstream_st *stream = stream_of(handle);
    order_follow(stream->number, &event->order);
    add_work(stream, event_await, record_new(event, false));
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    cudaError_t code = enter(__func__);
    event_await(record_new(event, false));
    order_wait(&event->order);
    return code;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    cudaError_t code = enter(__func__);
    pthread_mutex_lock(&lock);
    bool pending = event->reached < event->recorded;
    pthread_mutex_unlock(&lock);
    if (!pending)
        order_wait(&event->order);
    return code != cudaSuccess ? code : pending ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    cudaError_t code = enter(__func__);
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

cudaError_t cudaHostRegister(void *memory, size_t size, unsigned int flags)
{
    cudaError_t code = enter(__func__);
    (void)flags;
    if (code != cudaSuccess)
        return code;
    struct locked *range = malloc(sizeof *range);
    if (!range)
        abort();
    pthread_mutex_lock(&lock);
    *range = (struct locked){memory, size, locked};
    locked = range;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *memory)
{
    cudaError_t code = enter(__func__);
    pthread_mutex_lock(&lock);
    struct locked **link = &locked;
    while (*link && (*link)->memory != memory)
        link = &(*link)->next;
    struct locked *range = *link;
    if (!range)
        abort();
    *link = range->next;
    pthread_mutex_unlock(&lock);
    free(range);
    return code;
}

cudaError_t cudaHostAlloc(void **memory, size_t size, unsigned int flags)
{
    cudaError_t code = enter(__func__);
    (void)flags;
    if (code == cudaSuccess)
        *memory = host_memory_new(size);
    return code;
}

cudaError_t cudaFreeHost(void *memory)
{
    cudaError_t code = enter(__func__);
    host_memory_free(memory);
    return code;
}

/* ---- memory ---- */

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
    add_work(stream, copy_rows, copy);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    cudaError_t code = enter(__func__);
    if (code != cudaSuccess)
        return code;
    return enqueue((struct rows){{0}, to, from, size, size, size, 1, kind}, stream);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    cudaError_t code = enter(__func__);
    if (code != cudaSuccess)
        return code;
    if (to_pitch < width || from_pitch < width || to_pitch > (size_t)max_pitch ||
        from_pitch > (size_t)max_pitch)
        return cudaErrorInvalidPitchValue;
    return enqueue((struct rows){{0}, to, from, to_pitch, from_pitch, width, height, kind}, stream);
}

cudaError_t cudaMalloc(void **memory, size_t size)
{
    cudaError_t code = enter(__func__);
    if (code == cudaSuccess)
        *memory = stand_in_new(stand_in_current(), NULL, size);
    return code;
}

cudaError_t cudaFree(void *memory)
{
    cudaError_t code = enter(__func__);
    if (memory)
        stand_in_free(memory);
    return code;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *memory)
{
    cudaError_t code = enter(__func__);
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

/* ---- devices and errors ---- */

cudaError_t cudaSetDevice(int device)
{
    cudaError_t code = enter(__func__);
    if (code != cudaSuccess)
        return code;
    if (device < 0 || device >= STAND_IN_DEVICES)
        return last_error = cudaErrorInvalidDevice;
    make_context(device);
    stand_in_set_current(device);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    (void)device;
    *value = attribute == cudaDevAttrMaxPitch ? max_pitch : 0;
    return enter(__func__);
}

const char *cudaGetErrorString(cudaError_t code)
{
    switch (code) {
    case cudaSuccess:
        return "no error";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorInvalidDevice:
        return "invalid device ordinal";
    case cudaErrorInsufficientDriver:
        return "CUDA driver version is insufficient for CUDA runtime version";
    default:
        return "an illegal memory access was encountered";
    }
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t code = last_error;
    last_error = cudaSuccess;
    return code;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

static CUresult get_current(CUcontext *context)
{
    *context = current;
    return CUDA_SUCCESS;
}

static CUresult set_current(CUcontext context)
{
    current = context;
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function,
                                             unsigned int version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *found)
{
    cudaError_t code = enter(__func__);
    (void)version;
    (void)flags;
    *found = cudaDriverEntryPointSuccess;
    if (strcmp(symbol, "cuCtxGetCurrent") == 0)
        *function = (void *)get_current;
    else if (strcmp(symbol, "cuCtxSetCurrent") == 0)
        *function = (void *)set_current;
    else
        *found = cudaDriverEntryPointSymbolNotFound;
    return code;
}
