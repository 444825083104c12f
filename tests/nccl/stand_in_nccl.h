/* SPDX-License-Identifier: BSD-3-Clause */
/* A stand-in for NCCL, over threads of one process and the stand-in CUDA runtime: a collective is
 * work in each rank's stream that waits for all others, as NCCL's kernels do, and waits for ever if
 * one does not come; it uses device memory as any work in a stream does, which must be in order
 * with what others do to it. An abort ends it, for its own rank only, and waits for what is in the
 * stream before. A split waits for all ranks: in the call if the communicator blocks, else behind
 * it. */
#ifndef NCCL_STAND_IN_NCCL_H
#define NCCL_STAND_IN_NCCL_H

#include <stdbool.h>

#include <nccl.h>

#define STAND_IN_RANKS_MAX 4

/* Communicators of ranks 0 to size - 1, on devices of the same numbers. */
void stand_in_nccl_new(int size, ncclComm_t *communicators);
/* Lets go what is stuck, as an abort by the caller would. */
void stand_in_nccl_abort(ncclComm_t communicator);
/* Frees all communicators of the one given; their streams must have ended. */
void stand_in_nccl_free(ncclComm_t communicator);

/* The n-th call of a function of this name on this communicator fails with code. */
void stand_in_nccl_fail(ncclComm_t communicator, const char *function, long n, ncclResult_t code);
/* What this communicator says of what happened behind its back. */
void stand_in_nccl_set_state(ncclComm_t communicator, ncclResult_t state);
/* Makes it a communicator that does not block: after each collective it says ncclInProgress for
 * this many times. */
void stand_in_nccl_linger(ncclComm_t communicator, int times);
/* Makes its collectives stay in the stream until an abort, and its end as well. Those that are made
 * of it by a split are so from the beginning. */
void stand_in_nccl_stall(ncclComm_t communicator, bool stalls);

/* Collectives, and groups of sends and receives, that it was given so far. */
long stand_in_nccl_collectives(ncclComm_t communicator);

/* Of communicators that were made by splits: those that were neither destroyed nor aborted, and how
 * many were aborted so far; and how often an abort hit one that was not. */
struct stand_in_nccl_figures {
    int alive;
    int aborted;
    int foreign_aborts;
};
struct stand_in_nccl_figures stand_in_nccl_figures(void);

#endif
