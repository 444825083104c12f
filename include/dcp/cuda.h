/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file cuda.h
 * @brief CUDA devices (libdcp_cuda).
 */
#ifndef DCP_CUDA_H
#define DCP_CUDA_H

#include <cuda_runtime_api.h>

#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * CUDA device @p index, with its default stream as the queue:
 *
 *     dcp_tensor w = {.dtype = DCP_BF16, .ndim = 2, .global_shape = {4096, 4096},
 *                     .data = pointer_from_cudaMalloc, .device = dcp_cuda(0)};
 *
 * What was put into the stream before a save is what is saved, and a load waits for it before it
 * writes. Streams made with cudaStreamNonBlocking do not wait for the default stream: name the
 * stream instead.
 *
 * The library contains its own CUDA runtime and works beside the caller's, of any version.
 * Nothing happens on a device before the first copy or allocation there; the thread's current
 * device is the same after each call as before it.
 *
 * #dcp_device is returned by value here, as it will not grow.
 */
DCP_API dcp_device dcp_cuda(int index);

/** As dcp_cuda(), with a stream of that device; borrowed for as long as a tree refers to it.
 * Programs compiled for per-thread default streams pass cudaStreamPerThread. */
DCP_API dcp_device dcp_cuda_stream(int index, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
