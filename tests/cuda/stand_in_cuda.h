/* SPDX-License-Identifier: BSD-3-Clause */
/* A stand-in for the CUDA runtime, linked instead of it where there is no GPU. Its memory is the
 * stand-in device's, so that host code that touches it crashes. Its streams are threads that work
 * in order and later than they are told: a result that nobody waited for is not there. It keeps
 * count of the devices on which anything happened, which is where CUDA would have made a context.
 */
#ifndef CUDA_STAND_IN_CUDA_H
#define CUDA_STAND_IN_CUDA_H

#include <stdbool.h>
#include <stddef.h>

#include <cuda_runtime_api.h>

#define STAND_IN_DEVICES 4

/* Begins and ends a test: no device was used; at the end all default streams are gone. */
void stand_in_cuda_begin(void);
void stand_in_cuda_end(void);

cudaStream_t stand_in_stream_new(int device);
void stand_in_stream_free(cudaStream_t stream);
/* What is put into the stream next uses a block of the device: other streams' uses of it must be in
 * a certain order with that, see stand_in_order.h. */
void stand_in_stream_use(cudaStream_t stream, const void *memory, bool writes);
/* Puts a function into the stream's work. */
void stand_in_stream_run(cudaStream_t stream, void (*function)(void *), void *argument);
/* The same, of one that writes to a block of the device. */
void stand_in_stream_write(cudaStream_t stream, void *memory, void (*function)(void *),
                           void *argument);
/* How the priorities of streams that the library made compare: those not of the lowest. */
long stand_in_hasty_streams(void);

/* Whether there is a context on a device. */
bool stand_in_has_context(int device);
/* The calling thread's current context, as the driver knows it: a device, or -1. */
int stand_in_current(void);
void stand_in_set_current(int device);

/* The n-th call of a function of this name fails with code (0: none does). */
void stand_in_cuda_fail(const char *function, long n, cudaError_t code);
/* Largest distance of rows that a 2-D copy takes. */
void stand_in_cuda_max_pitch(int bytes);
/* Page-locked blocks, events and streams that were not freed, page-locked ranges not unlocked. */
long stand_in_cuda_host_blocks(void);
/* Bytes of the caller's host memory that are page-locked now. */
size_t stand_in_cuda_locked(void);
/* How often a function was called. */
long stand_in_cuda_calls(const char *function);

#endif
