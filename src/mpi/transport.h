/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages between ranks over a communicator of our own, with deadlines.
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
    MPI_Comm communicator;
    int rank;
    int size;
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

/* The communicator is borrowed. */
dcp_status transport_open(MPI_Comm communicator, struct transport **transport);
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
