/* SPDX-License-Identifier: BSD-3-Clause */
#include "training.h"

#include <stdio.h>
#include <stdlib.h>

#include <dcp/cuda.h>
#include <dcp/nccl.h>

void must(bool good, const char *what, const char *why)
{
    if (good)
        return;
    fprintf(stderr, "trainer_cuda: %s: %s\n", what, why);
    exit(1);
}

static void must_cuda(cudaError_t code, const char *what)
{
    must(code == cudaSuccess, what, cudaGetErrorString(code));
}

static void must_nccl(ncclResult_t code, const char *what)
{
    must(code == ncclSuccess, what, ncclGetErrorString(code));
}

static void must_dcp(dcp_status status, const char *what)
{
    must(status == DCP_OK, what, dcp_error_message());
}

/* All GPUs hold the whole tensor; each of them writes a part of it. */
static void add_tensor(const struct training *training, dcp_state *parent, const char *key,
                       int64_t rows, int64_t columns, float *memory)
{
    dcp_mesh mesh = {.ndim = 1, .shape = {training->gpus}, .rank = training->gpu};
    dcp_placement replicated = dcp_replicate();
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 2, .global_shape = {rows, columns}};
    must_dcp(dcp_mesh_shard(&mesh, &tensor, &replicated), key);
    tensor.device = dcp_cuda_stream(training->gpu, training->network.stream);
    tensor.data = memory;
    dcp_state_tensor(parent, key, &tensor);
}

/* The same tree describes what is saved and what is loaded; failures stick to it. */
static dcp_state *tree_of(const struct training *training)
{
    static const struct {
        const char *name;
        int64_t place, rows, columns;
    } parameters[] = {{"hidden.weight", HIDDEN_WEIGHT, HIDDEN, INPUTS},
                      {"hidden.bias", HIDDEN_BIAS, 1, HIDDEN},
                      {"output.weight", OUTPUT_WEIGHT, 1, HIDDEN},
                      {"output.bias", OUTPUT_BIAS, 1, 1}};
    const struct network *network = &training->network;
    dcp_state *root = dcp_state_new();
    dcp_state *model = dcp_state_dict(root, "model");
    dcp_state *moments = dcp_state_dict(dcp_state_dict(root, "optimizer"), "state");
    for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++) {
        int64_t place = parameters[i].place;
        int64_t rows = parameters[i].rows, columns = parameters[i].columns;
        dcp_state *own = dcp_state_dict(moments, parameters[i].name);
        add_tensor(training, model, parameters[i].name, rows, columns, network->values + place);
        add_tensor(training, own, "exp_avg", rows, columns, network->exp_avg + place);
        add_tensor(training, own, "exp_avg_sq", rows, columns, network->exp_avg_sq + place);
    }
    return root;
}

/* Checkpoints go over the communicator of training, between its steps, so that a job needs nothing
 * but NCCL; a GPU alone needs no group. Over NCCL a save commits at one of the steps that follow,
 * as soon as all GPUs' parts are written: NCCL's collectives come in one order, which a thread of
 * the library could not keep. */
void training_begin(struct training *training, int64_t save_every)
{
    dcp_run_resumed resumed;
    must_cuda(cudaSetDevice(training->gpu), "cudaSetDevice");
    must_cuda(network_make(&training->network, training->gpu, training->gpus), "making a network");
    if (training->communicator)
        must_dcp(
            dcp_group_new_nccl(training->communicator, training->network.stream, &training->group),
            "dcp_group_new_nccl");
    training->state = tree_of(training);
    const dcp_run_options run = {
        .group = training->group,
        .state = training->state,
        .identity = "trainer_cuda",
        .every_steps = save_every,
        .mode = DCP_RUN_ASYNC_OVERLAPPED,
        .load = &(dcp_load_options){.strictness = DCP_STRICT_RAISE_ALL},
    };
    must_dcp(dcp_run_open(training->directory, &run, &training->run), "opening the run");
    must_dcp(dcp_run_resume(training->run, &resumed), "resuming");
    training->network.step = (int)resumed.step;
    if (resumed.found && training->gpu == 0)
        printf("resuming from %s on %d GPUs\n", resumed.path, training->gpus);
}

void training_end(struct training *training)
{
    must_dcp(dcp_run_close(training->run), "saving");
    dcp_state_free(training->state);
    dcp_group_free(training->group);
    network_free(&training->network);
    if (training->communicator)
        must_nccl(ncclCommDestroy(training->communicator), "ncclCommDestroy");
}

/* Copies of parameters and moments are taken while gradients are computed; they must be over before
 * the optimizer changes what is copied. */
void training_step(struct training *training)
{
    struct network *network = &training->network;
    network_find_gradients(network);
    if (training->communicator)
        must_nccl(ncclAllReduce(network->sums, network->sums, SUMS, ncclInt64, ncclSum,
                                training->communicator, network->stream),
                  "ncclAllReduce");
    dcp_run_wait_staged(training->run);
    network_update(network);
    must_cuda(cudaGetLastError(), "a kernel");
}

void training_after_step(struct training *training)
{
    must_dcp(dcp_run_step(training->run, training->network.step), "saving");
}

/* FNV-1a. */
uint64_t training_digest(struct training *training)
{
    const struct network *network = &training->network;
    float *host = malloc(VALUES * sizeof *host);
    const unsigned char *bytes = (const unsigned char *)host;
    uint64_t digest = 0xcbf29ce484222325u;
    must(host != NULL, "the digest", "no memory");
    must_cuda(cudaMemcpyAsync(host, network->values, VALUES * sizeof *host, cudaMemcpyDeviceToHost,
                              network->stream),
              "cudaMemcpyAsync");
    must_cuda(cudaStreamSynchronize(network->stream), "training");
    for (size_t i = 0; i < VALUES * sizeof *host; i++)
        digest = (digest ^ bytes[i]) * 0x100000001b3u;
    free(host);
    return digest;
}
