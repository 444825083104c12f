/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file nccl.h
 * @brief Process groups over NCCL communicators (libdcp_nccl), for jobs that have nothing else.
 */
#ifndef DCP_NCCL_H
#define DCP_NCCL_H

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "group.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Makes a group over @p communicator, whose messages go through device memory on @p stream, behind
 * what is there already. Both are the caller's, stay so, and must outlive the group. Nothing is
 * sent yet: a rank that fails here must tell the others, or their first collective times out.
 *
 * While the library is in a collective (dcp_save(), dcp_load()), the caller puts no collective of
 * its own on the communicator, as NCCL asks for the same order on all ranks.
 *
 * Waits poll with a deadline and watch for asynchronous errors. The communicator is never aborted:
 * after a timeout or a failure the group is broken, its kernel may hold the stream until the caller
 * calls ncclCommAbort(), and some megabytes of device and page-locked memory stay with it until the
 * process ends. NCCL does not tell which ranks are missing. With a blocking communicator, setting
 * up its connections in the first collective may wait inside of NCCL, where no deadline reaches;
 * with one made with `blocking = 0` it does.
 *
 * Errors: DCP_ERR_ARGUMENT (a null communicator), DCP_ERR_STATE (one that is not ready yet),
 * DCP_ERR_GROUP, DCP_ERR_DEVICE, DCP_ERR_NO_MEMORY.
 */
DCP_API dcp_status dcp_group_new_nccl(ncclComm_t communicator, cudaStream_t stream,
                                      dcp_group **group);

#ifdef __cplusplus
}
#endif

#endif
