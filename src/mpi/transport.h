/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages between the ranks of a group over a communicator of our own, with deadlines.
 *
 * All messages pass in pieces through slots of the transport's memory, one for each message under
 * way. MPI never sees the caller's memory, so a wait can be given up at any time: memory that MPI
 * may still use is ours, and is kept as long as the process lives.
 *
 * A rank that gives up sends the reason (a notice) to its neighbours in the running collective, and
 * they pass it on to theirs, so that no rank waits for one that has gone. */
#ifndef MPI_TRANSPORT_H
#define MPI_TRANSPORT_H

#include <mpi.h>

#include "communicator.h"
#include "dcp/group.h"

/* Why a rank gave up, as it is sent. */
struct notice {
    uint32_t status;
    char phase[128];
    char text[896];
};

/* A message on its way to or from one peer. */
struct transfer {
    int peer;
    bool receiving;
    unsigned char *bytes; /* the rest of the message */
    size_t left;
    size_t piece; /* in flight now */
};

struct transport {
    struct communicator *communicator;
    int number; /* the group's number on the communicator */
    int rank;
    int size;
    int *places;    /* the communicator's ranks of the group's ranks */
    int *exchanged; /* five numbers of each rank, which ranks exchange to make new groups */
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
    struct notice failure; /* once broken: why */
};

/* A point in time, in seconds of the monotonic clock. */
double transport_now(void);

/* Waits a moment between polls; longer, the more polls have found nothing new. */
void transport_pause(unsigned idle_polls);

/* Opens a transport for group `number` of a communicator, and keeps a reference to that. This
 * process is `rank` of `size`. places: the communicator's ranks of these ranks, copied; NULL: the
 * same. */
dcp_status transport_open(struct communicator *communicator, int number, int rank, int size,
                          const int *places, struct transport **transport);
void transport_close(struct transport *transport);

/* DCP_ERR_GROUP, with MPI's message. */
dcp_status transport_mpi_error(int code, const char *call);

/* Begins a collective, without neighbours. DCP_ERR_STATE if a rank has given up, or if another
 * thread has finalized MPI. */
dcp_status transport_begin(struct transport *transport, const dcp_collective *call);
void transport_add_neighbor(struct transport *transport, int rank);

/* Add a message to the list of transport_run(): at most one to and one from each peer. */
void transport_send(struct transport *transport, int peer, const void *bytes, size_t size);
void transport_receive(struct transport *transport, int peer, void *bytes, size_t size);
/* Moves all messages on the list. After the deadline it gives up with DCP_ERR_TIMEOUT, which names
 * the peers whose messages did not pass. */
dcp_status transport_run(struct transport *transport, const dcp_collective *call, double deadline);

#endif
