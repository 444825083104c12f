/* SPDX-License-Identifier: BSD-3-Clause */
/* A group over NCCL: what its source files share. */
#ifndef NCCL_NCCL_GROUP_H
#define NCCL_NCCL_GROUP_H

#include "cuda/visit.h"
#include "dcp/nccl.h"

struct nccl_group {
    ncclComm_t communicator;
    bool owned; /* the communicator is ours, made by a split */
    cudaStream_t stream;
    int rank, size, device;
    size_t capacity; /* bytes of each of the two memories */
    unsigned char *host;
    unsigned char *memory; /* on the device */
    cudaEvent_t begun;     /* recorded before each collective */
    cudaEvent_t done;      /* recorded after each collective */
    bool abandoned;        /* CUDA may still use our memory */
    bool kept;             /* NCCL may still write here, so this is never freed */
    ncclComm_t no_part;    /* result of a split for a rank that is in no part */
};

/* Seconds of the monotonic clock. */
double nccl_now(void);

/* DCP_ERR_GROUP, with NCCL's message. */
dcp_status nccl_error(const struct nccl_group *group, ncclResult_t code, const char *call);

/* Waits until NCCL has enqueued its operations and, if asked, the device has completed them. */
dcp_status nccl_wait(const struct nccl_group *group, const dcp_collective *call, double deadline,
                     bool on_device);

/* After a failure: aborts a communicator of ours, and has no later call wait for what is under
 * way. */
void nccl_give_up(struct nccl_group *group);

/* Finalizes and destroys a communicator of ours, within some seconds. */
void nccl_release_communicator(struct nccl_group *group);

/* Operations of the group. */
dcp_status nccl_all_to_all(void *context, const dcp_collective *call, const void *send,
                           const size_t *send_sizes, const size_t *send_offsets, void *receive,
                           const size_t *receive_sizes, const size_t *receive_offsets);
void nccl_close(void *context);

/* ncclCommSplit came with NCCL 2.18. */
#define NCCL_CAN_SPLIT (NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 0))
#if NCCL_CAN_SPLIT
dcp_status nccl_split(void *context, const dcp_collective *call, int color, int rank, int size,
                      void **part);
#endif

/* Asks the communicator for rank and size, and allocates memory for messages. nccl_close() frees
 * it, also after a failure. */
dcp_status nccl_set_up(struct nccl_group *group);

#endif
