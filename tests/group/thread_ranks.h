/* SPDX-License-Identifier: BSD-3-Clause */
/* Running a body on every rank of a group of threads. */
#ifndef TESTS_GROUP_THREAD_RANKS_H
#define TESTS_GROUP_THREAD_RANKS_H

#include "dcp/group.h"

enum { RANKS_MAX = 8 };

/* What one rank gets, and how its body ended. */
struct thread_rank {
    dcp_group *group;
    int rank;
    int size;
    void *context;
    dcp_status status;
    char message[1100];
};

typedef dcp_status (*rank_body)(struct thread_rank *self);

/* Runs body on all ranks at once; derived: the groups offer what is required and nothing else. */
void thread_ranks_run(int size, bool derived, rank_body body, void *context,
                      struct thread_rank ranks[RANKS_MAX]);

#endif
