/* SPDX-License-Identifier: BSD-3-Clause */
/* Trains on a GPU, saves while it goes on, and resumes where it was: with the same bits as if it
 * had never stopped.
 *
 *     trainer_cuda DIRECTORY STEPS [SAVE_EVERY]
 *
 * Exits with 77 where there is no GPU. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "dcp.h"
#include "dcp/cuda.h"
#include "network.h"

enum { SKIPPED = 77 };

struct training {
    struct network network;
    int64_t step; /* steps taken */
    dcp_save_chain *chain;
    dcp_future *saving; /* NULL: no save is under way */
};

static void must(bool good, const char *what, const char *why)
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

static void must_dcp(dcp_status status, const char *what)
{
    must(status == DCP_OK, what, dcp_error_message());
}

static void add_tensor(dcp_state *parent, const char *key, const struct parameter *parameter,
                       float *memory, cudaStream_t stream)
{
    dcp_tensor tensor = {.dtype = DCP_F32,
                         .ndim = 2,
                         .global_shape = {parameter->rows, parameter->columns},
                         .device = dcp_cuda_stream(0, stream),
                         .data = memory};
    dcp_state_tensor(parent, key, &tensor);
}

/* The same tree describes what is saved and what is loaded; failures stick to it. */
static dcp_state *tree_of(const struct training *training)
{
    dcp_state *root = dcp_state_new();
    dcp_state *model = dcp_state_dict(root, "model");
    dcp_state *moments = dcp_state_dict(dcp_state_dict(root, "optimizer"), "state");
    for (int i = 0; i < PARAMETERS; i++) {
        const struct parameter *p = &training->network.parameters[i];
        dcp_state *of_parameter = dcp_state_dict(moments, p->name);
        add_tensor(model, p->name, p, p->value, training->network.stream);
        add_tensor(of_parameter, "exp_avg", p, p->exp_avg, training->network.stream);
        add_tensor(of_parameter, "exp_avg_sq", p, p->exp_avg_sq, training->network.stream);
    }
    dcp_state_int(root, "step", training->step);
    return root;
}

static void end_save(struct training *training)
{
    if (!training->saving)
        return;
    must_dcp(dcp_future_wait(training->saving, -1), "saving");
    dcp_future_free(training->saving);
    training->saving = NULL;
}

static void begin_save(struct training *training, const char *path)
{
    dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE, .chain = training->chain};
    dcp_state *root = tree_of(training);
    end_save(training);
    must_dcp(dcp_save_async(root, path, &options, &training->saving), "saving");
    dcp_state_free(root);
}

/* Begins anew if nothing was saved. */
static void resume(struct training *training, const char *path)
{
    dcp_checkpoint *checkpoint = NULL;
    dcp_status status = dcp_open(path, &checkpoint);
    dcp_close(checkpoint);
    if (status == DCP_ERR_NOT_FOUND)
        return;
    must_dcp(status, "looking for a checkpoint");
    dcp_state *root = tree_of(training);
    must_dcp(dcp_load(root, path, NULL, NULL), "loading");
    must_dcp(dcp_state_as_int(dcp_state_get(root, "step"), &training->step), "loading");
    dcp_state_free(root);
    printf("resumed at step %" PRId64 "\n", training->step);
}

/* The copy of the last save goes on while gradients are computed; it must be over before the
 * optimizer changes what is copied. */
static void take_step(struct training *training)
{
    network_find_gradients(&training->network, training->step);
    if (training->saving)
        must_dcp(dcp_future_wait_staged(training->saving, -1), "staging");
    network_update(&training->network, training->step, 1e-3f);
    must_cuda(cudaGetLastError(), "a kernel");
    training->step++;
}

/* FNV-1a of all parameters' bits. */
static uint64_t digest_of(const struct training *training)
{
    static float host[HIDDEN * INPUTS];
    uint64_t digest = 0xcbf29ce484222325u;
    must_cuda(cudaStreamSynchronize(training->network.stream), "training");
    for (int i = 0; i < PARAMETERS; i++) {
        const struct parameter *p = &training->network.parameters[i];
        size_t bytes = (size_t)p->rows * (size_t)p->columns * sizeof *host;
        must_cuda(cudaMemcpy(host, p->value, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
        for (size_t b = 0; b < bytes; b++)
            digest = (digest ^ ((const unsigned char *)host)[b]) * 0x100000001b3u;
    }
    return digest;
}

int main(int count, char **arguments)
{
    struct training training = {.step = 0};
    dcp_save_chain_options options = {.staging = DCP_STAGING_OVERLAPPED};
    char path[4096];
    double loss;
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("skipped: there is no GPU here\n");
        return SKIPPED;
    }
    if (count < 3) {
        fprintf(stderr, "usage: trainer_cuda DIRECTORY STEPS [SAVE_EVERY]\n");
        return 2;
    }
    int64_t steps = strtoll(arguments[2], NULL, 10);
    int64_t every = count > 3 ? strtoll(arguments[3], NULL, 10) : 10;
    snprintf(path, sizeof path, "%s/newest", arguments[1]);
    must_cuda(network_make(&training.network, 1), "making the network");
    must_dcp(dcp_save_chain_new(&options, &training.chain), "dcp_save_chain_new");
    resume(&training, path);
    while (training.step < steps) {
        take_step(&training);
        if (every > 0 && training.step % every == 0)
            begin_save(&training, path);
    }
    end_save(&training);
    must_cuda(network_loss(&training.network, &loss), "the loss");
    printf("step %" PRId64 ", loss %.6f, parameters %016" PRIx64 "\n", training.step, loss,
           digest_of(&training));
    dcp_save_chain_free(training.chain);
    network_free(&training.network);
    return 0;
}
