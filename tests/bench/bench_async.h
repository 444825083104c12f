/* SPDX-License-Identifier: BSD-3-Clause */
/* Asynchronous saves of one rank: how long its step waits, how long the save takes, and what it
 * takes away from a computation beside it. */
#ifndef BENCH_ASYNC_H
#define BENCH_ASYNC_H

#include "bench_state.h"
#include "shared_group.h"

struct async_times {
    double waited;    /* seconds until the tensors may change */
    double whole;     /* until the checkpoint is there */
    double processor; /* CPU seconds of this rank's save, from when the tensors may change */
    double lost;      /* seconds that a computation lost in that time */
};

struct bench_async {
    dcp_group *group;
    struct shared_memory *shared;
    const struct bench_state *state;
    dcp_save_chain *chains[DCP_STAGING_OVERLAPPED + 1];
    unsigned char *copy; /* warm memory for all of the state */
};

void bench_async_free(struct bench_async *async);

/* One more save of its chain. computes: multiplies matrices until it is over. */
void bench_async_save(struct bench_async *async, const char *path, dcp_staging_kind staging,
                      bool computes, struct async_times *times);
/* Seconds of one plain copy of the rank's tensors into memory that has been used before. */
double bench_async_copy(struct bench_async *async);

#endif
