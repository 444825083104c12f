/* SPDX-License-Identifier: BSD-3-Clause */
/* A process group of forked processes: the caller's own collectives, over shared memory. */
#ifndef BENCH_SHARED_GROUP_H
#define BENCH_SHARED_GROUP_H

#include <dcp.h>

/* Most ranks of a group. */
enum { SHARED_RANKS_MOST = 64 };

struct shared_memory;

/* What the processes share; to be made before they are forked. NULL: no memory. */
struct shared_memory *shared_memory_new(int size);
/* The group as seen by one of them. */
dcp_status shared_group_new(struct shared_memory *shared, int rank, dcp_group **group);
/* Waits until all ranks are here. */
void shared_barrier(struct shared_memory *shared);
/* The same after computing for a moment, as a training does between checkpoints: ranks that have
 * only been woken share a core, and what is measured would begin by moving them apart. */
void shared_start(struct shared_memory *shared);

#endif
