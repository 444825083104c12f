/* SPDX-License-Identifier: BSD-3-Clause */
/* A process group over NCCL. Messages pass in pieces through memory of our own, page-locked on the
 * host and on the device. So even if a collective is given up, CUDA and NCCL use no memory of the
 * caller's. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nccl_group.h"

/* Bytes of the pieces of all ranks together, and the least of each. */
enum { PIECES_BYTES = 4 << 20, PIECE_BYTES_MIN = 4 << 10 };

/* One step through the device. */
struct step {
    int root;     /* -1: from every rank to every rank */
    size_t bytes; /* of each sender */
};

static dcp_status start_collective(const struct nccl_group *group, const struct step *step)
{
    unsigned char *memory = group->memory;
    ncclResult_t code;
    if (step->root < 0)
        code = ncclAllGather(memory + (size_t)group->rank * step->bytes, memory, step->bytes,
                             ncclUint8, group->communicator, group->stream);
    else
        code = ncclBroadcast(memory, memory, step->bytes, ncclUint8, step->root,
                             group->communicator, group->stream);
    if (code == ncclSuccess || code == ncclInProgress)
        return DCP_OK;
    return nccl_error(group, code, step->root < 0 ? "ncclAllGather" : "ncclBroadcast");
}

/* The bytes to send are in our host memory at their place in the result; the result replaces
 * them. */
static dcp_status run_on_device(const struct nccl_group *group, const dcp_collective *call,
                                const struct step *step, double deadline)
{
    bool all = step->root < 0;
    size_t first = all ? (size_t)group->rank * step->bytes : 0;
    cudaError_t code = cudaEventRecord(group->begun, group->stream);
    if (code == cudaSuccess && (all || step->root == group->rank))
        code = cudaMemcpyAsync(group->memory + first, group->host + first, step->bytes,
                               cudaMemcpyHostToDevice, group->stream);
    if (code != cudaSuccess)
        return cuda_error(code, "a copy to the device");
    dcp_status status = start_collective(group, step);
    if (status == DCP_OK)
        status = nccl_wait(group, call, deadline, false);
    if (status != DCP_OK)
        return status;
    if (all || step->root != group->rank)
        code = cudaMemcpyAsync(group->host, group->memory,
                               all ? (size_t)group->size * step->bytes : step->bytes,
                               cudaMemcpyDeviceToHost, group->stream);
    if (code == cudaSuccess)
        code = cudaEventRecord(group->done, group->stream);
    if (code != cudaSuccess)
        return cuda_error(code, "a copy from the device");
    return nccl_wait(group, call, deadline, true);
}

static dcp_status run(struct nccl_group *group, const dcp_collective *call, const struct step *step,
                      double deadline)
{
    struct visit visit;
    dcp_status status = visit_begin(&visit, group->device);
    if (status != DCP_OK)
        return status;
    status = run_on_device(group, call, step, deadline);
    if (status != DCP_OK)
        nccl_give_up(group);
    visit_end(&visit);
    return status;
}

static dcp_status nccl_all_gather(void *context, const dcp_collective *call, const void *send,
                                  size_t bytes, void *receive)
{
    struct nccl_group *group = context;
    double deadline = nccl_now() + call->timeout_seconds;
    size_t size = (size_t)group->size, most = group->capacity / size;
    for (size_t done = 0; done < bytes;) {
        struct step step = {.root = -1, .bytes = bytes - done < most ? bytes - done : most};
        memcpy(group->host + (size_t)group->rank * step.bytes, (const char *)send + done,
               step.bytes);
        dcp_status status = run(group, call, &step, deadline);
        if (status != DCP_OK)
            return status;
        for (size_t r = 0; r < size; r++)
            memcpy((char *)receive + r * bytes + done, group->host + r * step.bytes, step.bytes);
        done += step.bytes;
    }
    return DCP_OK;
}

static dcp_status nccl_broadcast(void *context, const dcp_collective *call, int root, void *data,
                                 size_t bytes)
{
    struct nccl_group *group = context;
    double deadline = nccl_now() + call->timeout_seconds;
    for (size_t done = 0; done < bytes;) {
        size_t left = bytes - done;
        struct step step = {.root = root, .bytes = left < group->capacity ? left : group->capacity};
        char *place = (char *)data + done;
        if (root == group->rank)
            memcpy(group->host, place, step.bytes);
        dcp_status status = run(group, call, &step, deadline);
        if (status != DCP_OK)
            return status;
        if (root != group->rank)
            memcpy(place, group->host, step.bytes);
        done += step.bytes;
    }
    return DCP_OK;
}

/* Whether the device no longer uses our memory. After an abort of ours that takes only a moment. */
static bool is_drained(const struct nccl_group *group)
{
    static const double aborted_seconds = 1;
    double deadline = nccl_now() + (group->communicator == NULL ? aborted_seconds : 0);
    cudaError_t code = cudaSuccess;
    while (group->abandoned) {
        bool late = nccl_now() >= deadline;
        code = cudaStreamQuery(group->stream);
        if (code != cudaErrorNotReady || late)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return code == cudaSuccess;
}

/* Freeing memory that a stuck kernel uses would wait for the kernel, so it is never freed. */
void nccl_close(void *context)
{
    struct nccl_group *group = context;
    struct visit visit;
    visit_to_free(&visit, group->device);
    nccl_release_communicator(group);
    if (is_drained(group)) {
        if (group->begun != NULL)
            cudaEventDestroy(group->begun);
        if (group->done != NULL)
            cudaEventDestroy(group->done);
        cudaFreeHost(group->host);
        cudaFree(group->memory);
    }
    visit_end_freeing(&visit);
    if (!group->kept)
        free(group);
}

static dcp_status describe(struct nccl_group *group)
{
    ncclResult_t state = ncclSuccess;
    ncclResult_t code = ncclCommGetAsyncError(group->communicator, &state);
    if (code == ncclSuccess && state == ncclInProgress)
        return dcp_error_set(DCP_ERR_STATE, "the NCCL communicator is not ready yet");
    if (code == ncclSuccess)
        code = state;
    if (code == ncclSuccess)
        code = ncclCommCount(group->communicator, &group->size);
    if (code == ncclSuccess)
        code = ncclCommUserRank(group->communicator, &group->rank);
    if (code == ncclSuccess)
        code = ncclCommCuDevice(group->communicator, &group->device);
    return code == ncclSuccess ? DCP_OK : nccl_error(group, code, "asking the communicator");
}

static dcp_status allocate(struct nccl_group *group)
{
    struct visit visit;
    size_t least = (size_t)group->size * PIECE_BYTES_MIN;
    group->capacity = least > PIECES_BYTES ? least : PIECES_BYTES;
    dcp_status status = visit_begin(&visit, group->device);
    if (status != DCP_OK)
        return status;
    cudaError_t code = cudaMalloc((void **)&group->memory, group->capacity);
    if (code == cudaSuccess)
        code = cudaHostAlloc((void **)&group->host, group->capacity, cudaHostAllocDefault);
    if (code == cudaSuccess)
        code = cudaEventCreateWithFlags(&group->begun, cudaEventDisableTiming);
    if (code == cudaSuccess)
        code = cudaEventCreateWithFlags(&group->done, cudaEventDisableTiming);
    if (code != cudaSuccess)
        status = cuda_error(code, "allocating for messages");
    visit_end(&visit);
    return status;
}

dcp_status nccl_set_up(struct nccl_group *group)
{
    dcp_status status = describe(group);
    return status == DCP_OK ? allocate(group) : status;
}

dcp_status dcp_group_new_nccl(ncclComm_t communicator, cudaStream_t stream, dcp_group **group)
{
    static const dcp_group_operations operations = {
        .size_of = sizeof operations,
        .all_gather = nccl_all_gather,
        .broadcast = nccl_broadcast,
        .close = nccl_close,
        .all_to_all = nccl_all_to_all,
#if NCCL_CAN_SPLIT
        .split = nccl_split,
#endif
    };
    if (group == NULL)
        return dcp_error_set(DCP_ERR_ARGUMENT, "dcp_group_new_nccl: group is NULL");
    *group = NULL;
    if (communicator == NULL)
        return dcp_error_set(DCP_ERR_ARGUMENT, "dcp_group_new_nccl: the communicator is NULL");
    struct nccl_group *made = calloc(1, sizeof *made);
    if (made == NULL)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "no memory for a group over NCCL");
    made->communicator = communicator;
    made->stream = stream;
    dcp_status status = nccl_set_up(made);
    if (status == DCP_OK)
        status = dcp_group_new(&operations, made, made->rank, made->size, group);
    if (status != DCP_OK)
        nccl_close(made);
    return status;
}
