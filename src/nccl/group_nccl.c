/* SPDX-License-Identifier: BSD-3-Clause */
/* A process group over NCCL. Messages travel in pieces through memory of our own, page-locked on
 * the host and on the device: whatever becomes of a collective, neither CUDA nor NCCL holds on to
 * memory of the caller's. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda/visit.h"
#include "dcp/nccl.h"

/* Pieces of all ranks together, and at least of each. */
enum { PIECES_BYTES = 4 << 20, PIECE_BYTES_MIN = 4 << 10 };

/* The longest pause between two looks at a collective. */
enum { PAUSE_NS_MIN = 10000, PAUSE_NS_MAX = 1000000 };

struct nccl_group {
    ncclComm_t communicator;
    cudaStream_t stream;
    int rank, size, device;
    size_t capacity; /* bytes of each of the two */
    unsigned char *host;
    unsigned char *memory; /* on the device */
    cudaEvent_t done;      /* recorded behind each collective */
    bool abandoned;        /* CUDA may still use our memory */
};

/* What goes through the device at once. */
struct step {
    int root;     /* -1: from every rank to every rank */
    size_t bytes; /* of each sender */
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static dcp_status nccl_error(const struct nccl_group *group, ncclResult_t code, const char *call)
{
    const char *story = ncclGetLastError(group->communicator);
    bool told = story != NULL && *story != '\0';
    return dcp_error_set(DCP_ERR_GROUP, "%s failed: %s%s%s", call, ncclGetErrorString(code),
                         told ? ": " : "", told ? story : "");
}

/* Whether NCCL has taken in what it was told and, if that is asked, the device has done it. */
static dcp_status look(const struct nccl_group *group, bool on_device, bool *ended)
{
    ncclResult_t state = ncclSuccess;
    ncclResult_t code = ncclCommGetAsyncError(group->communicator, &state);
    if (code == ncclSuccess)
        code = state;
    if (code != ncclSuccess && code != ncclInProgress)
        return nccl_error(group, code, "a collective of NCCL");
    *ended = code == ncclSuccess;
    if (!*ended || !on_device)
        return DCP_OK;
    cudaError_t done = cudaEventQuery(group->done);
    *ended = done == cudaSuccess;
    return *ended || done == cudaErrorNotReady ? DCP_OK : cuda_error(done, "cudaEventQuery");
}

static dcp_status wait_for(const struct nccl_group *group, const dcp_collective *call,
                           double deadline, bool on_device)
{
    struct timespec pause = {.tv_nsec = PAUSE_NS_MIN};
    bool ended = false;
    for (;;) {
        bool late = now() >= deadline;
        dcp_status status = look(group, on_device, &ended);
        if (status != DCP_OK || ended)
            return status;
        if (late)
            return dcp_error_set(DCP_ERR_TIMEOUT,
                                 "not all of %d ranks came within %g seconds, or what was on the "
                                 "stream before did not end",
                                 group->size, call->timeout_seconds);
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < PAUSE_NS_MAX)
            pause.tv_nsec *= 2;
    }
}

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

/* What is sent lies in our host memory where it belongs in the result, which comes there. */
static dcp_status run_on_device(const struct nccl_group *group, const dcp_collective *call,
                                const struct step *step, double deadline)
{
    bool all = step->root < 0;
    size_t first = all ? (size_t)group->rank * step->bytes : 0;
    cudaError_t code = cudaSuccess;
    if (all || step->root == group->rank)
        code = cudaMemcpyAsync(group->memory + first, group->host + first, step->bytes,
                               cudaMemcpyHostToDevice, group->stream);
    if (code != cudaSuccess)
        return cuda_error(code, "a copy to the device");
    dcp_status status = start_collective(group, step);
    if (status == DCP_OK)
        status = wait_for(group, call, deadline, false);
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
    return wait_for(group, call, deadline, true);
}

static dcp_status run(struct nccl_group *group, const dcp_collective *call, const struct step *step,
                      double deadline)
{
    struct visit visit;
    dcp_status status = visit_begin(&visit, group->device);
    if (status != DCP_OK)
        return status;
    status = run_on_device(group, call, step, deadline);
    group->abandoned = group->abandoned || status != DCP_OK;
    visit_end(&visit);
    return status;
}

static dcp_status nccl_all_gather(void *context, const dcp_collective *call, const void *send,
                                  size_t bytes, void *receive)
{
    struct nccl_group *group = context;
    double deadline = now() + call->timeout_seconds;
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
    double deadline = now() + call->timeout_seconds;
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

/* One step of an all_to_all: a piece to and from each rank, through a slot of our memory each, the
 * first half of the slots for what is sent. */
struct exchange {
    const size_t *send_sizes;
    const size_t *receive_sizes;
    size_t done;  /* bytes of each message that have passed */
    size_t piece; /* of each message that pass now, at most */
};

static size_t piece_now(const struct exchange *exchange, size_t size)
{
    size_t left = size > exchange->done ? size - exchange->done : 0;
    return left < exchange->piece ? left : exchange->piece;
}

static dcp_status start_exchange(const struct nccl_group *group, const struct exchange *exchange)
{
    unsigned char *sent = group->memory;
    unsigned char *received = sent + (size_t)group->size * exchange->piece;
    ncclResult_t code = ncclGroupStart();
    for (int r = 0; r < group->size && code == ncclSuccess; r++) {
        size_t place = (size_t)r * exchange->piece;
        size_t out = piece_now(exchange, exchange->send_sizes[r]);
        size_t in = piece_now(exchange, exchange->receive_sizes[r]);
        if (out != 0)
            code = ncclSend(sent + place, out, ncclUint8, r, group->communicator, group->stream);
        if (in != 0 && code == ncclSuccess)
            code = ncclRecv(received + place, in, ncclUint8, r, group->communicator, group->stream);
    }
    ncclResult_t end = ncclGroupEnd();
    if (code == ncclSuccess)
        code = end;
    if (code == ncclSuccess || code == ncclInProgress)
        return DCP_OK;
    return nccl_error(group, code, "sending and receiving");
}

static dcp_status exchange_on_device(const struct nccl_group *group, const dcp_collective *call,
                                     const struct exchange *exchange, double deadline)
{
    size_t half = (size_t)group->size * exchange->piece;
    cudaError_t code =
        cudaMemcpyAsync(group->memory, group->host, half, cudaMemcpyHostToDevice, group->stream);
    if (code != cudaSuccess)
        return cuda_error(code, "a copy to the device");
    dcp_status status = start_exchange(group, exchange);
    if (status == DCP_OK)
        status = wait_for(group, call, deadline, false);
    if (status != DCP_OK)
        return status;
    code = cudaMemcpyAsync(group->host + half, group->memory + half, half, cudaMemcpyDeviceToHost,
                           group->stream);
    if (code == cudaSuccess)
        code = cudaEventRecord(group->done, group->stream);
    if (code != cudaSuccess)
        return cuda_error(code, "a copy from the device");
    return wait_for(group, call, deadline, true);
}

static dcp_status run_exchange(struct nccl_group *group, const dcp_collective *call,
                               const struct exchange *exchange, double deadline)
{
    struct visit visit;
    dcp_status status = visit_begin(&visit, group->device);
    if (status != DCP_OK)
        return status;
    status = exchange_on_device(group, call, exchange, deadline);
    group->abandoned = group->abandoned || status != DCP_OK;
    visit_end(&visit);
    return status;
}

/* Between the caller's messages and the slots. */
static void pack(const struct nccl_group *group, const struct exchange *exchange, const char *send,
                 const size_t *offsets)
{
    for (size_t r = 0; r < (size_t)group->size; r++) {
        size_t size = piece_now(exchange, exchange->send_sizes[r]);
        if (size != 0)
            memcpy(group->host + r * exchange->piece, send + offsets[r] + exchange->done, size);
    }
}

static void unpack(const struct nccl_group *group, const struct exchange *exchange, char *receive,
                   const size_t *offsets)
{
    const unsigned char *received = group->host + (size_t)group->size * exchange->piece;
    for (size_t r = 0; r < (size_t)group->size; r++) {
        size_t size = piece_now(exchange, exchange->receive_sizes[r]);
        if (size != 0)
            memcpy(receive + offsets[r] + exchange->done, received + r * exchange->piece, size);
    }
}

/* Each pair of ranks sees the same pieces in the same order; who has none left need not come. */
static dcp_status nccl_all_to_all(void *context, const dcp_collective *call, const void *send,
                                  const size_t *send_sizes, const size_t *send_offsets,
                                  void *receive, const size_t *receive_sizes,
                                  const size_t *receive_offsets)
{
    struct nccl_group *group = context;
    double deadline = now() + call->timeout_seconds;
    struct exchange exchange = {.send_sizes = send_sizes,
                                .receive_sizes = receive_sizes,
                                .piece = group->capacity / 2 / (size_t)group->size};
    size_t largest = 0;
    for (int r = 0; r < group->size; r++) {
        largest = send_sizes[r] > largest ? send_sizes[r] : largest;
        largest = receive_sizes[r] > largest ? receive_sizes[r] : largest;
    }
    for (; exchange.done < largest; exchange.done += exchange.piece) {
        pack(group, &exchange, send, send_offsets);
        dcp_status status = run_exchange(group, call, &exchange, deadline);
        if (status != DCP_OK)
            return status;
        unpack(group, &exchange, receive, receive_offsets);
    }
    return DCP_OK;
}

/* Freeing memory that a stuck kernel uses would wait for it. */
static void nccl_close(void *context)
{
    struct nccl_group *group = context;
    struct visit visit;
    if (!group->abandoned && visit_begin(&visit, group->device) == DCP_OK) {
        if (group->done != NULL)
            cudaEventDestroy(group->done);
        cudaFreeHost(group->host);
        cudaFree(group->memory);
        visit_end(&visit);
    }
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
        code = cudaEventCreateWithFlags(&group->done, cudaEventDisableTiming);
    if (code != cudaSuccess)
        status = cuda_error(code, "allocating for messages");
    visit_end(&visit);
    return status;
}

dcp_status dcp_group_new_nccl(ncclComm_t communicator, cudaStream_t stream, dcp_group **group)
{
    static const dcp_group_operations operations = {
        .size_of = sizeof operations,
        .all_gather = nccl_all_gather,
        .broadcast = nccl_broadcast,
        .close = nccl_close,
        .all_to_all = nccl_all_to_all,
    };
    if (group == NULL)
        return dcp_error_set(DCP_ERR_ARGUMENT, "dcp_group_new_nccl: group is NULL");
    *group = NULL;
    if (communicator == NULL)
        return dcp_error_set(DCP_ERR_ARGUMENT, "dcp_group_new_nccl: the communicator is null");
    struct nccl_group *made = calloc(1, sizeof *made);
    if (made == NULL)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "no memory for a group over NCCL");
    made->communicator = communicator;
    made->stream = stream;
    dcp_status status = describe(made);
    if (status == DCP_OK)
        status = allocate(made);
    if (status == DCP_OK)
        status = dcp_group_new(&operations, made, made->rank, made->size, group);
    if (status != DCP_OK)
        nccl_close(made);
    return status;
}
