/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages between the ranks of a group over a communicator of our own, with deadlines.
 *
 * Everything travels in pieces through slots of memory that belong to the transport, one for each
 * message under way. MPI never sees the caller's memory, so a wait can be given up at any time:
 * what MPI still holds on to then is ours, and is kept for as long as the process lives.
 *
 * A rank that gives up tells its neighbours of the running collective why (a notice), and they pass
 * it on to theirs: nobody waits for a rank that has gone. */
#ifndef MPI_TRANSPORT_H
#define MPI_TRANSPORT_H

#include <mpi.h>

#include "communicator.h"
#include "dcp/group.h"

/* Why a rank gave up, as it travels. */
struct notice {
    uint32_t status;
    char phase[128];
    char text[896];
};

/* A message on its way to or from one peer. */
struct transfer {
    int peer;
    bool receiving;
    unsigned char *bytes; /* what is left of the message */
    size_t left;
    size_t piece; /* in flight now */
};

struct transport {
    struct communicator *communicator;
    int number; /* of the group on the communicator */
    int rank;
    int size;
    int *places;  /* of the group's ranks in the communicator, which may have more */
    int *told_of; /* five numbers of each rank, for what ranks tell each other of new groups */
    bool broken;
    bool abandoned; /* MPI still uses our memory */
    size_t slot_size;
    unsigned char *slots;
    struct transfer *transfers; /* of the running step */
    int transfer_count;
    MPI_Request *requests; /* two for each rank's transfers, then one for each notice to it */
    MPI_Status *statuses;
    int *indices;
    bool *neighbors; /* by rank */
    MPI_Request hearing;
    struct notice heard;
    struct notice told; /* once broken: why */
};

/* A point in time, in seconds of the monotonic clock. */
double transport_now(void);

/* Waits a moment between two looks, the longer the more of them have shown nothing new. */
void transport_pause(unsigned idle_polls);

/* For group `number` of a communicator, of which it holds a reference. This process is `rank` of
 * `size`. places: of these ranks in the communicator, copied; NULL: the same. */
dcp_status transport_open(struct communicator *communicator, int number, int rank, int size,
                          const int *places, struct transport **transport);
void transport_close(struct transport *transport);

/* DCP_ERR_GROUP, with MPI's story. */
dcp_status transport_mpi_error(int code, const char *call);

/* Begins a collective: nobody is a neighbour yet. DCP_ERR_STATE if some rank has given up, or MPI
 * was finalized meanwhile, by another thread. */
dcp_status transport_begin(struct transport *transport, const dcp_collective *call);
void transport_add_neighbor(struct transport *transport, int rank);

/* Put a message on the list for transport_run(): at most one to and one from each peer. */
void transport_send(struct transport *transport, int peer, const void *bytes, size_t size);
void transport_receive(struct transport *transport, int peer, void *bytes, size_t size);
/* Moves all messages on the list. At the deadline it gives up with DCP_ERR_TIMEOUT, naming the
 * peers whose messages did not pass. */
dcp_status transport_run(struct transport *transport, const dcp_collective *call, double deadline);

#endif
