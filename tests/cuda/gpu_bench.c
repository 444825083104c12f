/* SPDX-License-Identifier: BSD-3-Clause */
/* How fast a real GPU's memory is saved and loaded; one line per measurement. Exits with 77 where
 * there is no GPU. gpu_bench DIRECTORY [GiB of the largest state, 4 by default] */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "dcp.h"
#include "dcp/cuda.h"

enum { TENSOR_BYTES = 64 << 20, TENSORS_MOST = 1024, PASSES = 5, SKIPPED = 77 };

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

static void tell(const char *what, size_t bytes, double seconds)
{
    printf("| %-44s | %5zu MiB | %9.2f ms | %7.2f GB/s |\n", what, bytes >> 20, seconds * 1e3,
           (double)bytes / seconds * 1e-9);
    fflush(stdout);
}

struct model {
    size_t count;
    void *memory[TENSORS_MOST];
    cudaStream_t stream;
};

static void model_make(struct model *model, size_t bytes)
{
    model->count = bytes / TENSOR_BYTES;
    check(model->count <= TENSORS_MOST, "the state is too large");
    check(cudaStreamCreate(&model->stream) == cudaSuccess, "cudaStreamCreate");
    for (size_t i = 0; i < model->count; i++) {
        check(cudaMalloc(&model->memory[i], TENSOR_BYTES) == cudaSuccess, "cudaMalloc");
        check(cudaMemsetAsync(model->memory[i], (int)i + 1, TENSOR_BYTES, model->stream) ==
                  cudaSuccess,
              "cudaMemsetAsync");
    }
    check(cudaStreamSynchronize(model->stream) == cudaSuccess, "cudaStreamSynchronize");
}

static void model_free(struct model *model)
{
    for (size_t i = 0; i < model->count; i++)
        cudaFree(model->memory[i]);
    cudaStreamDestroy(model->stream);
}

static dcp_state *tree_of(const struct model *model)
{
    dcp_state *root = dcp_state_new();
    for (size_t i = 0; i < model->count; i++) {
        char name[24];
        dcp_tensor tensor = {.dtype = DCP_U8,
                             .ndim = 1,
                             .global_shape = {TENSOR_BYTES},
                             .device = dcp_cuda_stream(0, model->stream),
                             .data = model->memory[i]};
        snprintf(name, sizeof name, "w%zu", i);
        dcp_state_tensor(root, name, &tensor);
    }
    return root;
}

/* What the device can do: one copy into page-locked memory. */
static void bench_plain_copy(const struct model *model)
{
    void *host = NULL;
    double best = 1e9;
    size_t bytes = model->count * TENSOR_BYTES;
    check(cudaMallocHost(&host, bytes) == cudaSuccess, "cudaMallocHost");
    for (int pass = 0; pass < PASSES; pass++) {
        double began = now();
        for (size_t i = 0; i < model->count; i++)
            cudaMemcpyAsync((char *)host + i * TENSOR_BYTES, model->memory[i], TENSOR_BYTES,
                            cudaMemcpyDeviceToHost, model->stream);
        check(cudaStreamSynchronize(model->stream) == cudaSuccess, "cudaMemcpyAsync");
        double seconds = now() - began;
        best = seconds < best ? seconds : best;
    }
    cudaFreeHost(host);
    tell("cudaMemcpyAsync, page-locked", bytes, best);
}

static void begin(const struct model *model, const char *path, dcp_save_chain *chain,
                  dcp_future **future)
{
    dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE, .chain = chain};
    dcp_state *root = tree_of(model);
    check(dcp_save_async(root, path, &options, future) == DCP_OK, "dcp_save_async");
    dcp_state_free(root);
}

/* The best of some saves; the first one makes the page-locked memory. */
static void bench_async(const struct model *model, const char *path)
{
    dcp_save_chain_options options = {.staging = DCP_STAGING_OVERLAPPED};
    dcp_save_chain *chain = NULL;
    double call = 1e9, staged = 1e9, whole = 1e9;
    size_t bytes = model->count * TENSOR_BYTES;
    check(dcp_save_chain_new(&options, &chain) == DCP_OK, "dcp_save_chain_new");
    for (int pass = 0; pass < PASSES; pass++) {
        dcp_future *future = NULL;
        double began = now();
        begin(model, path, chain, &future);
        double called = now() - began;
        check(dcp_future_wait_staged(future, -1) == DCP_OK, "dcp_future_wait_staged");
        double waited = now() - began;
        check(dcp_future_wait(future, -1) == DCP_OK, "dcp_future_wait");
        double over = now() - began;
        dcp_future_free(future);
        if (pass == 0)
            tell("dcp_save_async, first call returns", bytes, called);
        call = pass > 0 && called < call ? called : call;
        staged = pass > 0 && waited < staged ? waited : staged;
        whole = pass > 0 && over < whole ? over : whole;
    }
    dcp_save_chain_free(chain);
    tell("dcp_save_async, overlapped: call returns", bytes, call);
    tell("dcp_save_async, overlapped: staged", bytes, staged);
    tell("dcp_save_async, overlapped: durable", bytes, whole);
}

static void bench_blocking(const struct model *model, const char *path)
{
    dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE};
    double saved = 1e9, loaded = 1e9;
    size_t bytes = model->count * TENSOR_BYTES;
    for (int pass = 0; pass < PASSES; pass++) {
        dcp_state *root = tree_of(model);
        double began = now();
        check(dcp_save(root, path, &options) == DCP_OK, "dcp_save");
        double between = now();
        check(dcp_load(root, path, NULL, NULL) == DCP_OK, "dcp_load");
        double ended = now();
        saved = between - began < saved ? between - began : saved;
        loaded = ended - between < loaded ? ended - between : loaded;
        dcp_state_free(root);
    }
    tell("dcp_save", bytes, saved);
    tell("dcp_load", bytes, loaded);
}

int main(int count, char **arguments)
{
    struct cudaDeviceProp device;
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("skipped: there is no GPU here\n");
        return SKIPPED;
    }
    if (count < 2) {
        fprintf(stderr, "usage: gpu_bench DIRECTORY [GiB]\n");
        return 2;
    }
    size_t most = (count > 2 ? strtoul(arguments[2], NULL, 10) : 4) << 30;
    const size_t sizes[] = {(size_t)256 << 20, (size_t)1 << 30, (size_t)4 << 30};
    char path[4096];
    snprintf(path, sizeof path, "%s/gpu_bench.checkpoint", arguments[1]);
    check(cudaGetDeviceProperties(&device, 0) == cudaSuccess, "cudaGetDeviceProperties");
    printf("%s, dcp %s\n", device.name, dcp_version_string());
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && sizes[i] <= most; i++) {
        static struct model model;
        model_make(&model, sizes[i]);
        bench_plain_copy(&model);
        bench_async(&model, path);
        bench_blocking(&model, path);
        model_free(&model);
    }
    return 0;
}
