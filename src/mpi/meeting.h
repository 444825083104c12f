/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI's own collectives with a deadline: started without blocking, and polled. A collective that
 * does not end in time is left to MPI as long as the process lives, and so is the memory that MPI
 * may still write to. */
#ifndef MPI_MEETING_H
#define MPI_MEETING_H

#include <mpi.h>
#include <stdbool.h>

#include "dcp/group.h"

/* A rank's status, laid out for MPI_MAXLOC. */
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

/* Duplicates a communicator. The copy returns its errors instead of ending the program.
 * DCP_ERR_TIMEOUT names the call and how long it has waited. */
dcp_status meeting_duplicate(struct meeting *meeting, MPI_Comm communicator,
                             const dcp_collective *call, double deadline, MPI_Comm *copy);

/* All ranks of the communicator succeed, or none does. */
dcp_status meeting_agree(struct meeting *meeting, MPI_Comm communicator, const dcp_collective *call,
                         double deadline, dcp_status mine);

#endif
