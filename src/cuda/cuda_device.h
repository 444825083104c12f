/* SPDX-License-Identifier: BSD-3-Clause */
/* The operations of a CUDA device; dcp/device.h describes each. */
#ifndef CUDA_CUDA_DEVICE_H
#define CUDA_CUDA_DEVICE_H

#include "dcp/device.h"

dcp_status cuda_copy_to_host(const dcp_device *device, void *host, const void *memory, size_t pitch,
                             size_t width, size_t height);
dcp_status cuda_copy_from_host(const dcp_device *device, void *memory, size_t pitch,
                               const void *host, size_t width, size_t height);
dcp_status cuda_start_copy_to_host(const dcp_device *device, void *host, const void *memory,
                                   size_t pitch, size_t width, size_t height);
dcp_status cuda_start_copy_from_host(const dcp_device *device, void *memory, size_t pitch,
                                     const void *host, size_t width, size_t height);

dcp_status cuda_page_lock(const dcp_device *device, void *host, size_t bytes);
void cuda_page_unlock(const dcp_device *device, void *host);
dcp_status cuda_queue_open(const dcp_device *device, void **queue);
void cuda_queue_close(const dcp_device *device, void *queue);
dcp_status cuda_event_open(const dcp_device *device, void **event);
void cuda_event_close(const dcp_device *device, void *event);
dcp_status cuda_event_record(const dcp_device *device, void *event);
dcp_status cuda_event_follow(const dcp_device *device, void *event);
dcp_status cuda_event_wait(const dcp_device *device, void *event);
dcp_status cuda_event_reached(const dcp_device *device, void *event, bool *reached);

#endif
