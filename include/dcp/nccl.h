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
 * sent yet: a rank that fails here must notify the others, or their first collective times out.
 *
 * While the library is in a collective (dcp_save(), dcp_load()), the caller puts no collective of
 * its own on the communicator, as NCCL asks for the same order on all ranks.
 *
 * Waits poll with a deadline and watch for asynchronous errors. After a timeout or a failure the
 * group is broken. The caller's communicator is never aborted: its kernel may hold the stream until
 * the caller calls ncclCommAbort(). NCCL does not report which ranks are missing. With a blocking
 * communicator, setting up its connections in the first collective may wait inside of NCCL, where
 * no deadline reaches; with one made with `blocking = 0` it does.
 *
 * Memory, until the group is freed: 4 MiB on the device and as much page-locked, or 4 KiB for each
 * rank where that is more, whatever the size of messages. Where the device has not ended with it by
 * then, because the communicator was not aborted, it stays until the process ends.
 *
 * Parts (dcp_group_split(), from NCCL 2.18 on; else DCP_ERR_UNSUPPORTED) have communicators of
 * their own, made by ncclCommSplit() with `blocking = 0` and no resources in common, and use the
 * same stream, so that a part and the whole group are not used by two threads at the same time.
 * These are the library's: a part that fails or times out aborts its own (unless earlier work on
 * the stream keeps it from beginning: an abort would wait for that, so dcp_group_free() aborts it
 * then). dcp_group_free() waits up to 5 seconds for the other ranks of a part to free theirs. With
 * a blocking communicator ncclCommSplit() itself waits, where no deadline reaches, but all ranks
 * have just met.
 *
 * The group cannot be duplicated (dcp_group_duplicate()): the work of another thread on the device
 * would need one order with the collectives of training, the same on all ranks, which cannot be
 * guaranteed. So asynchronous saves commit when they are waited for or polled, and send nothing
 * before. With MPI for messages and NCCL for bulk bytes only (dcp_group_pair()), they commit in the
 * background, over MPI.
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
