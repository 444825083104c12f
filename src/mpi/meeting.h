/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI's own collectives, with a deadline: they are begun, and polled. What is not over in time
 * stays with MPI for as long as the process lives, and so does the memory that it may still write
 * to. */
#ifndef MPI_MEETING_H
#define MPI_MEETING_H

#include <mpi.h>
#include <stdbool.h>

#include "dcp/group.h"

/* A rank's status as MPI_MAXLOC takes it. */
struct standing {
    int status;
    int rank;
};

struct meeting {
    MPI_Request request;
    MPI_Comm made;
    struct standing own;
    struct standing worst;
    bool late; /* a deadline passed: MPI may still write here */
};

/* NULL: no memory. */
struct meeting *meeting_new(void);
void meeting_free(struct meeting *meeting);

/* Duplicates a communicator; errors of the copy are returned. DCP_ERR_TIMEOUT names the call and
 * how long it has waited. */
dcp_status meeting_duplicate(struct meeting *meeting, MPI_Comm communicator,
                             const dcp_collective *call, double deadline, MPI_Comm *copy);

/* All ranks of the communicator succeed, or none does. */
dcp_status meeting_agree(struct meeting *meeting, MPI_Comm communicator, const dcp_collective *call,
                         double deadline, dcp_status mine);

#endif
