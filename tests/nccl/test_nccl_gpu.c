/* SPDX-License-Identifier: BSD-3-Clause */
/* libdcp_nccl on all GPUs of a machine, a thread for each; skipped (77) where there is none. Each
 * rank has its rows of a matrix on its GPU: saved and loaded, asynchronously as well, by all and by
 * parts of the group. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dcp.h"
#include "dcp/cuda.h"
#include "dcp/nccl.h"

enum { ROWS = 1501, COLUMNS = 1999, GPUS_MOST = 16, SKIPPED = 77 };

struct rank {
    int gpu;
    ncclComm_t communicator;
    cudaStream_t stream;
    dcp_group *group;
    pthread_t thread;
};

static void check(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "%s: %s\n", what, dcp_error_message());
    exit(1);
}

/* Of row r and column c: r * COLUMNS + c. */
static void count_up(const dcp_tensor *tensor, float *values)
{
    for (int64_t i = 0; i < tensor->sizes[0] * COLUMNS; i++)
        values[i] = (float)(tensor->offsets[0] * COLUMNS + i);
}

/* The group's rows that belong to this rank, in memory of the device. */
static dcp_tensor make_rows(const struct rank *rank, dcp_group *group)
{
    dcp_mesh mesh = {.ndim = 1, .shape = {dcp_group_size(group)}, .rank = dcp_group_rank(group)};
    dcp_placement rows = dcp_shard(0);
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 2, .global_shape = {ROWS, COLUMNS}};
    check(dcp_mesh_shard(&mesh, &tensor, &rows) == DCP_OK, "dcp_mesh_shard");
    tensor.device = dcp_cuda_stream(rank->gpu, rank->stream);
    check(cudaMalloc(&tensor.data, (size_t)(tensor.sizes[0] * COLUMNS) * sizeof(float)) ==
              cudaSuccess,
          "cudaMalloc");
    return tensor;
}

static void save(struct rank *rank, dcp_group *group, const char *path, bool async,
                 const dcp_tensor *tensor)
{
    dcp_save_options options = {.group = group, .overwrite = DCP_OVERWRITE_REPLACE};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "w", tensor);
    if (!async) {
        check(dcp_save(root, path, &options) == DCP_OK, "dcp_save");
    } else {
        dcp_save_chain_options how = {.group = group, .staging = DCP_STAGING_OVERLAPPED};
        dcp_future *future;
        check(dcp_save_chain_new(&how, &options.chain) == DCP_OK, "dcp_save_chain_new");
        check(!dcp_save_chain_in_background(options.chain), "NCCL commits when it is asked");
        check(dcp_save_async(root, path, &options, &future) == DCP_OK, "dcp_save_async");
        check(dcp_future_wait_staged(future, 60) == DCP_OK, "dcp_future_wait_staged");
        check(cudaMemsetAsync(tensor->data, 0, sizeof(float), rank->stream) == cudaSuccess,
              "cudaMemsetAsync");
        check(dcp_future_wait(future, 60) == DCP_OK, "dcp_future_wait");
        dcp_future_free(future);
        dcp_save_chain_free(options.chain);
    }
    dcp_state_free(root);
}

/* Everyone reads all of it, some of it for the others. */
static void load(dcp_group *group, const char *path, const dcp_tensor *tensor, dcp_reading reading)
{
    dcp_load_options options = {.group = group, .reading = reading};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "w", tensor);
    check(dcp_load(root, path, &options, NULL) == DCP_OK, "dcp_load");
    dcp_state_free(root);
}

static void round_trip(struct rank *rank, dcp_group *group, const char *path, bool async)
{
    dcp_tensor tensor = make_rows(rank, group);
    size_t bytes = (size_t)(tensor.sizes[0] * COLUMNS) * sizeof(float);
    float *expected = malloc(bytes), *found = malloc(bytes);
    check(expected != NULL && found != NULL, "malloc");
    count_up(&tensor, expected);
    check(cudaMemcpyAsync(tensor.data, expected, bytes, cudaMemcpyHostToDevice, rank->stream) ==
              cudaSuccess,
          "cudaMemcpyAsync");
    save(rank, group, path, async, &tensor);
    for (int pass = 0; pass < 2; pass++) {
        check(cudaMemsetAsync(tensor.data, 0, bytes, rank->stream) == cudaSuccess,
              "cudaMemsetAsync");
        load(group, path, &tensor, pass == 0 ? DCP_READING_DIRECT : DCP_READING_COOPERATIVE);
        check(cudaMemcpyAsync(found, tensor.data, bytes, cudaMemcpyDeviceToHost, rank->stream) ==
                      cudaSuccess &&
                  cudaStreamSynchronize(rank->stream) == cudaSuccess,
              "copying back");
        check(memcmp(found, expected, bytes) == 0, "what was loaded differs");
    }
    check(cudaFree(tensor.data) == cudaSuccess, "cudaFree");
    free(expected);
    free(found);
}

static void *play(void *argument)
{
    struct rank *rank = argument;
    dcp_group *part;
    char path[64];
    check(cudaSetDevice(rank->gpu) == cudaSuccess &&
              cudaStreamCreateWithFlags(&rank->stream, cudaStreamNonBlocking) == cudaSuccess,
          "a stream");
    check(dcp_group_new_nccl(rank->communicator, rank->stream, &rank->group) == DCP_OK,
          "dcp_group_new_nccl");
    round_trip(rank, rank->group, "nccl_gpu.checkpoint", false);
    round_trip(rank, rank->group, "nccl_gpu.checkpoint", true);
    check(dcp_group_split(rank->group, rank->gpu % 2, 0, 60, &part) == DCP_OK, "dcp_group_split");
    snprintf(path, sizeof path, "nccl_gpu.part%d", rank->gpu % 2);
    round_trip(rank, part, path, false);
    dcp_group_free(part);
    round_trip(rank, rank->group, "nccl_gpu.checkpoint", false);
    dcp_group_free(rank->group);
    check(ncclCommDestroy(rank->communicator) == ncclSuccess, "ncclCommDestroy");
    check(cudaStreamDestroy(rank->stream) == cudaSuccess, "cudaStreamDestroy");
    return NULL;
}

int main(void)
{
    static struct rank ranks[GPUS_MOST];
    ncclComm_t communicators[GPUS_MOST];
    int gpus = 0;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
        printf("no GPU here\n");
        return SKIPPED;
    }
    gpus = gpus < GPUS_MOST ? gpus : GPUS_MOST;
    check(ncclCommInitAll(communicators, gpus, NULL) == ncclSuccess, "ncclCommInitAll");
    for (int i = 0; i < gpus; i++) {
        ranks[i] = (struct rank){.gpu = i, .communicator = communicators[i]};
        check(pthread_create(&ranks[i].thread, NULL, play, &ranks[i]) == 0, "pthread_create");
    }
    for (int i = 0; i < gpus; i++)
        pthread_join(ranks[i].thread, NULL);
    return 0;
}
