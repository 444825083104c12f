/* SPDX-License-Identifier: BSD-3-Clause */
/* libdcp_cuda on a real GPU; skipped (77) where there is none. This program has a CUDA runtime of
 * its own beside the library's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

#include "dcp.h"
#include "dcp/cuda.h"

enum { ROWS = 3000, COLUMNS = 1999, SKIPPED = 77 };

static void check(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "%s: %s\n", what, dcp_error_message());
    exit(1);
}

/* Whether there is a context on the first GPU. */
static bool has_context(void)
{
    typedef CUresult (*get_state)(CUdevice, unsigned int *, int *);
    enum cudaDriverEntryPointQueryResult found;
    void *function = NULL;
    unsigned int flags;
    int active = 0;
    check(cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &function, 7000,
                                           cudaEnableDefault, &found) == cudaSuccess &&
              function != NULL && ((get_state)function)(0, &flags, &active) == CUDA_SUCCESS,
          "cuDevicePrimaryCtxGetState");
    return active != 0;
}

static void save_or_load(bool load, const char *path, const dcp_tensor *tensor)
{
    dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "w", tensor);
    if (load)
        check(dcp_load(root, path, NULL, NULL) == DCP_OK, "dcp_load");
    else
        check(dcp_save(root, path, &options) == DCP_OK, "dcp_save");
    dcp_state_free(root);
}

/* The tensor goes from the device to a file to the host, and from a file to the device. */
static void round_trip(const char *path, dcp_tensor tensor, const float *expected)
{
    size_t count = (size_t)(tensor.global_shape[0] * tensor.global_shape[1]);
    float *host = calloc(count, sizeof *host);
    dcp_tensor there = {.dtype = DCP_F32, .ndim = 2, .data = host};
    memcpy(there.global_shape, tensor.global_shape, sizeof there.global_shape);
    check(host != NULL, "calloc");
    save_or_load(false, path, &tensor);
    save_or_load(true, path, &there);
    check(memcmp(host, expected, count * sizeof *host) == 0, "saved from the device, it differs");
    check(cudaMemset(tensor.data, 0, sizeof *host) == cudaSuccess, "cudaMemset");
    save_or_load(true, path, &tensor);
    memset(host, 0, count * sizeof *host);
    save_or_load(false, path, &tensor);
    save_or_load(true, path, &there);
    check(memcmp(host, expected, count * sizeof *host) == 0, "loaded to the device, it differs");
    free(host);
}

int main(void)
{
    int devices = 0;
    const char *path = "cuda_gpu.checkpoint"; /* in the build folder */
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("no GPU here\n");
        return SKIPPED;
    }
    check(!has_context(), "there is a context before the first use");
    float *values = malloc((size_t)ROWS * COLUMNS * sizeof *values);
    float *turned = malloc((size_t)ROWS * COLUMNS * sizeof *turned);
    check(values != NULL && turned != NULL, "malloc");
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++)
            values[r * COLUMNS + c] = turned[c * ROWS + r] = (float)(r * COLUMNS + c);

    size_t bytes = (size_t)ROWS * COLUMNS * sizeof *values;
    cudaStream_t stream;
    void *memory = NULL;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
              cudaMalloc(&memory, bytes) == cudaSuccess,
          "device memory");
    dcp_tensor tensor = {.dtype = DCP_F32,
                         .ndim = 2,
                         .global_shape = {ROWS, COLUMNS},
                         .data = memory,
                         .device = dcp_cuda_stream(0, stream)};
    check(cudaMemcpyAsync(memory, values, bytes, cudaMemcpyHostToDevice, stream) == cudaSuccess,
          "cudaMemcpyAsync");
    round_trip(path, tensor, values);

    tensor.strided = true;
    tensor.strides[0] = 1;
    tensor.strides[1] = ROWS;
    tensor.device = dcp_cuda(0);
    check(cudaMemcpy(memory, turned, bytes, cudaMemcpyHostToDevice) == cudaSuccess, "cudaMemcpy");
    round_trip(path, tensor, values);

    tensor.strided = false;
    tensor.data = NULL;
    save_or_load(true, path, &tensor);
    free(values);
    free(turned);
    check(cudaFree(memory) == cudaSuccess && cudaStreamDestroy(stream) == cudaSuccess, "freeing");
    return 0;
}
