/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file mpi.h
 * @brief Process groups over MPI communicators (libdcp_mpi).
 */
#ifndef DCP_MPI_H
#define DCP_MPI_H

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
 * Waits poll with a deadline; on a timeout the message names the ranks that did not come. MPI
 * itself is never aborted. The group must be freed by all ranks before MPI_Finalize.
 */
DCP_API dcp_status dcp_group_new_mpi(MPI_Comm communicator, dcp_group **group);

#ifdef __cplusplus
}
#endif

#endif
