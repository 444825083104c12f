/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file mpi.h
 * @brief Process groups over MPI communicators (libdcp_mpi).
 */
#ifndef DCP_MPI_H
#define DCP_MPI_H

/* The C++ bindings that MPI dropped in 2012 would need yet another library. */
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include "group.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Makes a group over any communicator, sub-communicators included. Collective over @p communicator,
 * which is duplicated, so that the library's messages never meet the caller's. MPI must be
 * initialized, at least with MPI_THREAD_FUNNELED if saves and loads run on the main thread, else
 * MPI_THREAD_SERIALIZED.
 *
 * Waits poll with a deadline; on a timeout the message names the ranks that did not come, on every
 * rank within a second after it. The library never aborts MPI; but Open MPI connects two ranks with
 * their first message, and ends the job itself when the network is down then (over TCP): mpiexec's
 * `--mca mpi_preconnect_mpi 1` connects all ranks in MPI_Init. Messages are copied: the caller's
 * memory is its own again when a call returns, however it ends. The group must be freed by all
 * ranks before MPI_Finalize, unless an asynchronous save is under way: then MPI_Finalize calls
 * dcp_finish_saves(), by an attribute of MPI_COMM_SELF, and saves that do not end in time fail. A
 * broken group leaves its communicator, and some 16 MiB of messages that MPI may still hold on to,
 * until the process ends.
 *
 * Making groups, copies and parts has a deadline as well: if a rank of the communicator does not
 * make the same call, DCP_ERR_TIMEOUT says which call of MPI has waited, after half an hour. MPI
 * may be busy with the communicator then, so that the caller should not free it.
 *
 * Errors: DCP_ERR_ARGUMENT (a null communicator, or an inter-communicator), DCP_ERR_STATE (MPI is
 * not initialized, or not for this thread), DCP_ERR_NO_MEMORY, DCP_ERR_GROUP, DCP_ERR_TIMEOUT. If
 * one rank lacks the memory, no rank gets a group.
 */
DCP_API dcp_status dcp_group_new_mpi(MPI_Comm communicator, dcp_group **group);

/**
 * As dcp_group_new_mpi(), with a deadline.
 * @param timeout_seconds of waits for other ranks; 0 means 1800.
 */
DCP_API dcp_status dcp_group_new_mpi_within(MPI_Comm communicator, double timeout_seconds,
                                            dcp_group **group);

#ifdef __cplusplus
}
#endif

#endif
