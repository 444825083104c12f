/* SPDX-License-Identifier: BSD-3-Clause */
/* A communicator of our own, which a group shares with its copies and parts; each group has its own
 * tags on it. Making a communicator in MPI blocks until all ranks come, whereas numbers for tags
 * are agreed upon by messages, which have deadlines. */
#ifndef MPI_COMMUNICATOR_H
#define MPI_COMMUNICATOR_H

#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>

struct communicator {
    MPI_Comm handle;
    int numbers;           /* the number of groups that it has tags for */
    pthread_mutex_t mutex; /* guards all below */
    int references;
    int next;  /* the lowest number that this rank has not given to any group */
    bool kept; /* MPI may still use it, so it is never freed */
};

/* Takes ownership of the handle. The result has one reference, and number 0 is in use. NULL: no
 * memory. */
struct communicator *communicator_new(MPI_Comm handle);
void communicator_hold(struct communicator *communicator);
/* Drops a reference; the last one frees it. keep: operations of ours may still be under way, so
 * never free it. */
void communicator_release(struct communicator *communicator, bool keep);

/* The number that this rank proposes for another group. */
int communicator_propose(struct communicator *communicator);
/* Reserves the highest number that any rank of the group has proposed. False if this rank has given
 * it to another group meanwhile. */
bool communicator_claim(struct communicator *communicator, int proposed, int highest);

#endif
