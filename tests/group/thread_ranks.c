/* SPDX-License-Identifier: BSD-3-Clause */
#include "group/thread_ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "group/collective.h"

struct start {
    struct thread_rank *rank;
    rank_body body;
    pthread_barrier_t *together; /* or the time to start a thread would count as a wait */
};

static void *run_body(void *argument)
{
    struct start *start = argument;
    struct thread_rank *rank = start->rank;
    pthread_barrier_wait(start->together);
    rank->status = start->body(rank);
    if (rank->status != DCP_OK)
        snprintf(rank->message, sizeof rank->message, "%s", dcp_error_message());
    return NULL;
}

void thread_ranks_run(int size, bool derived, rank_body body, void *context,
                      struct thread_rank ranks[RANKS_MAX])
{
    dcp_group *groups[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    struct start starts[RANKS_MAX];
    pthread_barrier_t together;
    pthread_barrier_init(&together, NULL, (unsigned)size);
    if (dcp_group_new_threads(size, groups) != DCP_OK)
        abort();
    for (int rank = 0; rank < size; rank++) {
        if (derived)
            groups[rank]->operations.gather = NULL;
        if (derived)
            groups[rank]->operations.scatter = NULL;
        if (derived)
            groups[rank]->operations.all_to_all = NULL;
        if (derived)
            groups[rank]->operations.duplicate = NULL;
        if (derived)
            groups[rank]->operations.split = NULL;
        ranks[rank] = (struct thread_rank){
            .group = groups[rank], .rank = rank, .size = size, .context = context};
        starts[rank] = (struct start){&ranks[rank], body, &together};
        if (pthread_create(&threads[rank], NULL, run_body, &starts[rank]) != 0)
            abort();
    }
    for (int rank = 0; rank < size; rank++) {
        pthread_join(threads[rank], NULL);
        dcp_group_free(groups[rank]);
    }
    pthread_barrier_destroy(&together);
}
