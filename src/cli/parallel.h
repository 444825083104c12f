/* SPDX-License-Identifier: BSD-3-Clause */
/* The same work on many pieces, by several threads. */
#ifndef CLI_PARALLEL_H
#define CLI_PARALLEL_H

#include "command.h"

/* Works on piece `index` as thread number `thread`. *bytes: how many it has moved. A failure ends
 * the work; pieces that others are at are completed. */
typedef dcp_status parallel_work(void *context, int thread, size_t index, uint64_t *bytes);

/* How many pieces from `index` on one thread is to work on, one after the other; at least 1. */
typedef size_t parallel_run_length(void *context, size_t index);

struct parallel {
    size_t count;         /* pieces; they are begun in their order */
    int thread_count;     /* parallel_threads() */
    uint64_t bytes_total; /* for progress */
    parallel_work *work;
    parallel_run_length *run_length;
    void *context;
};

/* As many threads as there are processors, up to 8 and up to the number of pieces, unless `wanted`
 * says otherwise; at least 1. */
int parallel_threads(int32_t wanted, size_t count);
/* Does it all, and shows how far it is on a terminal. Failures have the library's message of the
 * first one. */
dcp_status parallel_run(const struct parallel *parallel);

#endif
