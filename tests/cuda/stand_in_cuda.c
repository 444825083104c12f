/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices, contexts, errors, and what tests ask for. */
#include <cuda.h>
#include <string.h>

#include "cuda/stand_in_order.h"
#include "cuda/stand_in_runtime.h"
#include "device/stand_in.h"

struct call {
    const char *name;
    long count;
};

enum { MAX_PITCH = 1 << 30 };

struct runtime runtime = {.lock = PTHREAD_MUTEX_INITIALIZER, .max_pitch = MAX_PITCH};
static struct call calls[64];
static bool contexts[STAND_IN_DEVICES];
static const char *failing_name = "";
static long failing_call;
static cudaError_t failing_code;
static char handles[STAND_IN_DEVICES]; /* a context is the address of one of these */
static _Thread_local CUcontext current;
static _Thread_local cudaError_t last_error;

static struct call *call_named(const char *name)
{
    struct call *call = calls;
    while (call->name && strcmp(call->name, name) != 0)
        call++;
    call->name = name;
    return call;
}

cudaError_t runtime_enter(const char *name)
{
    pthread_mutex_lock(&runtime.lock);
    struct call *call = call_named(name);
    call->count++;
    bool fails = strcmp(name, failing_name) == 0 && --failing_call == 0;
    if (fails)
        last_error = failing_code;
    pthread_mutex_unlock(&runtime.lock);
    return fails ? failing_code : cudaSuccess;
}

void stand_in_cuda_begin(void)
{
    memset(calls, 0, sizeof calls);
    memset(contexts, 0, sizeof contexts);
    failing_name = "";
    runtime.max_pitch = MAX_PITCH;
    runtime.hasty_streams = 0;
    order_begin();
    current = NULL;
    last_error = cudaSuccess;
    stand_in_reset(0, 0);
}

void stand_in_cuda_end(void)
{
    streams_end();
}

long stand_in_cuda_host_blocks(void)
{
    pthread_mutex_lock(&runtime.lock);
    long made = runtime.made;
    pthread_mutex_unlock(&runtime.lock);
    return made;
}

long stand_in_hasty_streams(void)
{
    return runtime.hasty_streams;
}

bool stand_in_has_context(int device)
{
    pthread_mutex_lock(&runtime.lock);
    bool has = contexts[device];
    pthread_mutex_unlock(&runtime.lock);
    return has;
}

void runtime_make_context(int device)
{
    pthread_mutex_lock(&runtime.lock);
    contexts[device] = true;
    pthread_mutex_unlock(&runtime.lock);
}

int runtime_device(void)
{
    int device = current ? stand_in_current() : 0;
    runtime_make_context(device);
    return device;
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
    runtime.max_pitch = bytes;
}

long stand_in_cuda_calls(const char *function)
{
    pthread_mutex_lock(&runtime.lock);
    long count = call_named(function)->count;
    pthread_mutex_unlock(&runtime.lock);
    return count;
}

cudaError_t cudaSetDevice(int device)
{
    cudaError_t code = runtime_enter(__func__);
    if (code != cudaSuccess)
        return code;
    if (device < 0 || device >= STAND_IN_DEVICES)
        return last_error = cudaErrorInvalidDevice;
    runtime_make_context(device);
    stand_in_set_current(device);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = STAND_IN_DEVICES;
    return runtime_enter(__func__);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    (void)device;
    *properties = (struct cudaDeviceProp){.name = "a stand-in for a GPU"};
    return runtime_enter(__func__);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    (void)device;
    *value = attribute == cudaDevAttrMaxPitch ? runtime.max_pitch : 0;
    return runtime_enter(__func__);
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

static CUresult get_state(CUdevice device, unsigned int *flags, int *active)
{
    *flags = 0;
    *active = stand_in_has_context(device);
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function,
                                             unsigned int version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *found)
{
    cudaError_t code = runtime_enter(__func__);
    (void)version;
    (void)flags;
    *found = cudaDriverEntryPointSuccess;
    if (strcmp(symbol, "cuCtxGetCurrent") == 0)
        *function = (void *)get_current;
    else if (strcmp(symbol, "cuCtxSetCurrent") == 0)
        *function = (void *)set_current;
    else if (strcmp(symbol, "cuDevicePrimaryCtxGetState") == 0)
        *function = (void *)get_state;
    else
        *found = cudaDriverEntryPointSymbolNotFound;
    return code;
}
