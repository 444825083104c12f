/* SPDX-License-Identifier: BSD-3-Clause */
/* How fast a GPU's memory is saved and loaded, next to a plain copy of it in the same run; one line
 * per measurement. Exits with 77 where there is no GPU.
 *
 *     gpu_bench DIRECTORY [MiB of the largest state, 4096 by default]
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "dcp.h"
#include "dcp/cuda.h"

enum { TENSORS = 16, PASSES = 5, SKIPPED = 77 };

/* What is promised: of the rate of a plain copy, and of the caller's time. */
static const double promised_share = 0.9, promised_ms = 5;

static void check(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "gpu_bench: %s: %s\n", what, dcp_error_message());
    exit(1);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static double lesser(double a, double b)
{
    return a < b ? a : b;
}

static void print(const char *what, size_t bytes, double seconds, const char *remark)
{
    printf("| %-40s | %4zu MiB | %9.2f ms | %7.2f GB/s | %-34s |\n", what, bytes >> 20,
           seconds * 1e3, (double)bytes / seconds * 1e-9, remark);
    fflush(stdout);
}

struct model {
    size_t tensor_bytes;
    void *memory[TENSORS];
    cudaStream_t stream;
};

static void model_make(struct model *model, size_t bytes)
{
    model->tensor_bytes = bytes / TENSORS;
    check(cudaStreamCreateWithFlags(&model->stream, cudaStreamNonBlocking) == cudaSuccess,
          "making a stream");
    for (int i = 0; i < TENSORS; i++) {
        check(cudaMalloc(&model->memory[i], model->tensor_bytes) == cudaSuccess, "cudaMalloc");
        check(cudaMemsetAsync(model->memory[i], i + 1, model->tensor_bytes, model->stream) ==
                  cudaSuccess,
              "cudaMemsetAsync");
    }
    check(cudaStreamSynchronize(model->stream) == cudaSuccess, "cudaStreamSynchronize");
}

static void model_free(struct model *model)
{
    for (int i = 0; i < TENSORS; i++)
        cudaFree(model->memory[i]);
    cudaStreamDestroy(model->stream);
}

static dcp_state *tree_of(const struct model *model)
{
    dcp_state *root = dcp_state_new();
    for (int i = 0; i < TENSORS; i++) {
        char name[24];
        dcp_tensor tensor = {.dtype = DCP_U8,
                             .ndim = 1,
                             .global_shape = {(int64_t)model->tensor_bytes},
                             .device = dcp_cuda_stream(0, model->stream),
                             .data = model->memory[i]};
        snprintf(name, sizeof name, "w%d", i);
        dcp_state_tensor(root, name, &tensor);
    }
    return root;
}

/* What the device can do: one copy into page-locked memory. Returns bytes per second. */
static double bench_plain_copy(size_t bytes)
{
    void *host = NULL, *memory = NULL;
    cudaStream_t stream;
    double best = 1e9;
    check(cudaMallocHost(&host, bytes) == cudaSuccess, "cudaMallocHost");
    check(cudaMalloc(&memory, bytes) == cudaSuccess, "cudaMalloc");
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess,
          "making a stream");
    for (int pass = 0; pass < PASSES; pass++) {
        double began = now();
        check(cudaMemcpyAsync(host, memory, bytes, cudaMemcpyDeviceToHost, stream) == cudaSuccess,
              "cudaMemcpyAsync");
        check(cudaStreamSynchronize(stream) == cudaSuccess, "cudaStreamSynchronize");
        best = lesser(best, now() - began);
    }
    cudaStreamDestroy(stream);
    cudaFree(memory);
    cudaFreeHost(host);
    print("cudaMemcpyAsync, page-locked", bytes, best, "what the device can do");
    return (double)bytes / best;
}

/* Seconds from the call on. */
struct times {
    double called, staged, durable;
};

static struct times save_async(const struct model *model, const char *path, dcp_save_chain *chain)
{
    dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE, .chain = chain};
    dcp_state *root = tree_of(model);
    dcp_future *future = NULL;
    struct times times;
    double began = now();
    check(dcp_save_async(root, path, &options, &future) == DCP_OK, "dcp_save_async");
    times.called = now() - began;
    check(dcp_future_wait_staged(future, -1) == DCP_OK, "dcp_future_wait_staged");
    times.staged = now() - began;
    check(dcp_future_wait(future, -1) == DCP_OK, "dcp_future_wait");
    times.durable = now() - began;
    dcp_future_free(future);
    dcp_state_free(root);
    return times;
}

/* The best of some saves after the first, which makes the page-locked memory. */
static void bench_async(const struct model *model, const char *path, double plain_rate)
{
    dcp_save_chain_options options = {.staging = DCP_STAGING_OVERLAPPED};
    dcp_save_chain *chain = NULL;
    struct times best = {1e9, 1e9, 1e9};
    size_t bytes = model->tensor_bytes * TENSORS;
    char remark[64];
    check(dcp_save_chain_new(&options, &chain) == DCP_OK, "dcp_save_chain_new");
    print("dcp_save_async, first call returns", bytes, save_async(model, path, chain).called, "");
    for (int pass = 0; pass < PASSES; pass++) {
        struct times times = save_async(model, path, chain);
        best.called = lesser(best.called, times.called);
        best.staged = lesser(best.staged, times.staged);
        best.durable = lesser(best.durable, times.durable);
    }
    dcp_save_chain_free(chain);
    snprintf(remark, sizeof remark, "%s: promised is < %g ms",
             best.called * 1e3 < promised_ms ? "kept" : "MISSED", promised_ms);
    print("dcp_save_async, overlapped: call returns", bytes, best.called, remark);
    double share = (double)bytes / best.staged / plain_rate;
    snprintf(remark, sizeof remark, "%.2f of plain, %s: promised is %g", share,
             share >= promised_share ? "kept" : "MISSED", promised_share);
    print("dcp_save_async, overlapped: staged", bytes, best.staged, remark);
    print("dcp_save_async, overlapped: durable", bytes, best.durable, "");
}

static void bench_blocking(const struct model *model, const char *path)
{
    dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE};
    double saved = 1e9, loaded = 1e9;
    size_t bytes = model->tensor_bytes * TENSORS;
    for (int pass = 0; pass < PASSES; pass++) {
        dcp_state *root = tree_of(model);
        double began = now();
        check(dcp_save(root, path, &options) == DCP_OK, "dcp_save");
        double between = now();
        check(dcp_load(root, path, NULL, NULL) == DCP_OK, "dcp_load");
        loaded = lesser(loaded, now() - between);
        saved = lesser(saved, between - began);
        dcp_state_free(root);
    }
    print("dcp_save", bytes, saved, "");
    print("dcp_load", bytes, loaded, "");
}

int main(int count, char **arguments)
{
    struct cudaDeviceProp device;
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("skipped: there is no GPU here\n");
        return SKIPPED;
    }
    size_t most = count > 2 ? strtoul(arguments[2], NULL, 10) : 4096;
    if (count < 2 || most < TENSORS) {
        fprintf(stderr, "usage: gpu_bench DIRECTORY [MiB of the largest state, at least %d]\n",
                TENSORS);
        return 2;
    }
    char path[4096];
    snprintf(path, sizeof path, "%s/gpu_bench.checkpoint", arguments[1]);
    check(cudaGetDeviceProperties(&device, 0) == cudaSuccess, "cudaGetDeviceProperties");
    printf("%s, dcp %s\n\n", device.name, dcp_version_string());
    printf("| what | state | time | rate | |\n| --- | --- | --- | --- | --- |\n");
    double plain_rate = bench_plain_copy((most << 20) / 16);
    for (size_t share = 16; share >= 1; share /= 4) {
        struct model model;
        model_make(&model, (most << 20) / share);
        bench_async(&model, path, plain_rate);
        bench_blocking(&model, path);
        model_free(&model);
    }
    return 0;
}
