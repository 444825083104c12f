/* SPDX-License-Identifier: BSD-3-Clause */
/* A communicator of our own, which a group shares with its copies and parts: each has tags of its
 * own there. MPI makes communicators only with all ranks waiting for each other; numbers for tags
 * are agreed upon by messages, which have deadlines. */
#ifndef MPI_COMMUNICATOR_H
#define MPI_COMMUNICATOR_H

#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>

struct communicator {
    MPI_Comm handle;
    int numbers;           /* as many groups can be on it */
    pthread_mutex_t mutex; /* guards all below */
    int references;
    int next;  /* the lowest number that this rank has not given to any group */
    bool kept; /* MPI may still be busy with it, so that it is never freed */
};

/* Owns the handle from now on, with one reference; NULL: no memory. Number 0 is taken. */
struct communicator *communicator_new(MPI_Comm handle);
void communicator_hold(struct communicator *communicator);
/* keep: something of ours may still be under way. The last one frees it. */
void communicator_release(struct communicator *communicator, bool keep);

/* A number for another group, as this rank would have it. */
int communicator_propose(struct communicator *communicator);
/* Takes the highest number that any rank of the group has proposed. Whether this rank has not given
 * it to another group meanwhile. */
bool communicator_claim(struct communicator *communicator, int proposed, int highest);

#endif
