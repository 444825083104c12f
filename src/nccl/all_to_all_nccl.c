/* SPDX-License-Identifier: BSD-3-Clause */
/* all_to_all: messages from every rank to every other, in pieces through slots of the group's
 * memory. */
#include <string.h>

#include "nccl_group.h"

/* One step: a piece to and from each rank, each through a slot of our memory; the first half of the
 * slots is for sending. Both ends divide a message into the same pieces; the size of slots may
 * differ. */
struct exchange {
    const size_t *send_sizes;
    const size_t *receive_sizes;
    size_t done;  /* bytes of each message that have passed */
    size_t piece; /* most bytes of each message that pass now */
    size_t slot;  /* the largest of the pieces that pass now */
};

static size_t piece_now(const struct exchange *exchange, size_t size)
{
    size_t left = size > exchange->done ? size - exchange->done : 0;
    return left < exchange->piece ? left : exchange->piece;
}

static dcp_status start_exchange(const struct nccl_group *group, const struct exchange *exchange)
{
    unsigned char *sent = group->memory;
    unsigned char *received = sent + (size_t)group->size * exchange->slot;
    ncclResult_t code = ncclGroupStart();
    for (int r = 0; r < group->size && code == ncclSuccess; r++) {
        size_t place = (size_t)r * exchange->slot;
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
    size_t half = (size_t)group->size * exchange->slot;
    cudaError_t code = cudaEventRecord(group->begun, group->stream);
    if (code == cudaSuccess)
        code = cudaMemcpyAsync(group->memory, group->host, half, cudaMemcpyHostToDevice,
                               group->stream);
    if (code != cudaSuccess)
        return cuda_error(code, "a copy to the device");
    dcp_status status = start_exchange(group, exchange);
    if (status == DCP_OK)
        status = nccl_wait(group, call, deadline, false);
    if (status != DCP_OK)
        return status;
    code = cudaMemcpyAsync(group->host + half, group->memory + half, half, cudaMemcpyDeviceToHost,
                           group->stream);
    if (code == cudaSuccess)
        code = cudaEventRecord(group->done, group->stream);
    if (code != cudaSuccess)
        return cuda_error(code, "a copy from the device");
    return nccl_wait(group, call, deadline, true);
}

static dcp_status run_exchange(struct nccl_group *group, const dcp_collective *call,
                               const struct exchange *exchange, double deadline)
{
    struct visit visit;
    dcp_status status = visit_begin(&visit, group->device);
    if (status != DCP_OK)
        return status;
    status = exchange_on_device(group, call, exchange, deadline);
    if (status != DCP_OK)
        nccl_give_up(group);
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
            memcpy(group->host + r * exchange->slot, send + offsets[r] + exchange->done, size);
    }
}

static void unpack(const struct nccl_group *group, const struct exchange *exchange, char *receive,
                   const size_t *offsets)
{
    const unsigned char *received = group->host + (size_t)group->size * exchange->slot;
    for (size_t r = 0; r < (size_t)group->size; r++) {
        size_t size = piece_now(exchange, exchange->receive_sizes[r]);
        if (size != 0)
            memcpy(receive + offsets[r] + exchange->done, received + r * exchange->slot, size);
    }
}

/* Each pair of ranks exchanges the same pieces in the same order; a rank with no pieces left need
 * not take part. */
dcp_status nccl_all_to_all(void *context, const dcp_collective *call, const void *send,
                           const size_t *send_sizes, const size_t *send_offsets, void *receive,
                           const size_t *receive_sizes, const size_t *receive_offsets)
{
    struct nccl_group *group = context;
    double deadline = nccl_now() + call->timeout_seconds;
    struct exchange exchange = {.send_sizes = send_sizes,
                                .receive_sizes = receive_sizes,
                                .piece = group->capacity / 2 / (size_t)group->size};
    size_t largest = 0;
    for (int r = 0; r < group->size; r++) {
        largest = send_sizes[r] > largest ? send_sizes[r] : largest;
        largest = receive_sizes[r] > largest ? receive_sizes[r] : largest;
    }
    for (; exchange.done < largest; exchange.done += exchange.piece) {
        size_t left = largest - exchange.done;
        exchange.slot = left < exchange.piece ? left : exchange.piece;
        pack(group, &exchange, send, send_offsets);
        dcp_status status = run_exchange(group, call, &exchange, deadline);
        if (status != DCP_OK)
            return status;
        unpack(group, &exchange, receive, receive_offsets);
    }
    return DCP_OK;
}
