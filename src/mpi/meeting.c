/* SPDX-License-Identifier: BSD-3-Clause */
#include "meeting.h"

#include <stdio.h>
#include <stdlib.h>

#include "finalize.h"
#include "transport.h"

struct meeting *meeting_new(void)
{
    struct meeting *made = calloc(1, sizeof *made);
    if (made != NULL)
        made->request = MPI_REQUEST_NULL;
    return made;
}

void meeting_free(struct meeting *meeting)
{
    if (meeting != NULL && !meeting->late)
        free(meeting);
}

/* Polls once. MPI is released between polls, as MPI_Finalize() must not wait for our deadline. */
static dcp_status look(struct meeting *meeting, const char *what, bool *done)
{
    int ended = 0;
    if (!finalize_hold_off())
        return dcp_error_set(DCP_ERR_STATE, "%s: MPI was finalized", what);
    int code = MPI_Test(&meeting->request, &ended, MPI_STATUS_IGNORE);
    finalize_let_go();
    *done = ended != 0;
    return code == MPI_SUCCESS ? DCP_OK : transport_mpi_error(code, what);
}

static dcp_status wait_for_all(struct meeting *meeting, const char *what,
                               const dcp_collective *call, double deadline)
{
    double began = transport_now(), next = dcp_collective_log_wait(call, 0, NULL);
    bool done = false;
    for (unsigned idle_polls = 0; !done; idle_polls++) {
        double now = transport_now();
        dcp_status status = look(meeting, what, &done);
        if (status == DCP_OK && !done && now >= deadline)
            status = dcp_error_set(DCP_ERR_TIMEOUT,
                                   "%s has waited for %.3g s: not all ranks of the communicator "
                                   "have made the same call",
                                   what, now - began);
        meeting->late = status != DCP_OK;
        if (status != DCP_OK)
            return status;
        if (now - began >= next)
            next = dcp_collective_log_wait(call, now - began, "other ranks of the communicator");
        if (!done)
            transport_pause(idle_polls);
    }
    return DCP_OK;
}

dcp_status meeting_duplicate(struct meeting *meeting, MPI_Comm communicator,
                             const dcp_collective *call, double deadline, MPI_Comm *copy)
{
    if (!finalize_hold_off())
        return dcp_error_set(DCP_ERR_STATE, "MPI was finalized");
    int code = MPI_Comm_idup(communicator, &meeting->made, &meeting->request);
    finalize_let_go();
    if (code != MPI_SUCCESS)
        return transport_mpi_error(code, "MPI_Comm_idup");
    dcp_status status = wait_for_all(meeting, "MPI_Comm_idup", call, deadline);
    if (status != DCP_OK)
        return status;
    MPI_Comm_set_errhandler(meeting->made, MPI_ERRORS_RETURN);
    *copy = meeting->made;
    return DCP_OK;
}

dcp_status meeting_agree(struct meeting *meeting, MPI_Comm communicator, const dcp_collective *call,
                         double deadline, dcp_status mine)
{
    meeting->own.status = (int)mine;
    MPI_Comm_rank(communicator, &meeting->own.rank);
    if (!finalize_hold_off())
        return dcp_error_set(DCP_ERR_STATE, "MPI was finalized");
    int code = MPI_Iallreduce(&meeting->own, &meeting->worst, 1, MPI_2INT, MPI_MAXLOC, communicator,
                              &meeting->request);
    finalize_let_go();
    if (mine != DCP_OK && code != MPI_SUCCESS)
        return mine;
    if (code != MPI_SUCCESS)
        return transport_mpi_error(code, "MPI_Iallreduce");
    char message[1024];
    snprintf(message, sizeof message, "%s", dcp_error_message());
    dcp_status status = wait_for_all(meeting, "MPI_Iallreduce", call, deadline);
    if (mine != DCP_OK)
        return dcp_error_set(mine, "%s", message);
    if (status != DCP_OK || meeting->worst.status == DCP_OK)
        return status;
    return dcp_error_set((dcp_status)meeting->worst.status, "rank %d could not make its group: %s",
                         meeting->worst.rank, dcp_status_string((dcp_status)meeting->worst.status));
}
