/* SPDX-License-Identifier: BSD-3-Clause */
/* Moves boxes of elements between host memory and a device, by as few and as large device copies as
 * the strides allow. */
#ifndef DEVICE_DEVICE_COPY_H
#define DEVICE_DEVICE_COPY_H

#include "dcp/device.h"

/* Strides count elements; they may be negative, and 0 at the source. The device is not the host. If
 * the elements are ordered differently on the host and on the device, they go through a buffer of
 * the box's size, so callers limit that. Errors: DCP_ERR_NO_MEMORY, and the device's. */
dcp_status device_copy_to_host(const dcp_device *device, int32_t ndim, const int64_t *sizes,
                               size_t element_size, const void *memory, const int64_t *strides,
                               void *host, const int64_t *host_strides);
/* The same, but only queued, without waiting, if the device supports that and the elements have the
 * same order on both sides. Otherwise it waits. */
dcp_status device_start_to_host(const dcp_device *device, int32_t ndim, const int64_t *sizes,
                                size_t element_size, const void *memory, const int64_t *strides,
                                void *host, const int64_t *host_strides);
dcp_status device_copy_from_host(const dcp_device *device, int32_t ndim, const int64_t *sizes,
                                 size_t element_size, const void *host, const int64_t *host_strides,
                                 void *memory, const int64_t *strides);
/* As device_start_to_host(), in the other direction. */
dcp_status device_start_from_host(const dcp_device *device, int32_t ndim, const int64_t *sizes,
                                  size_t element_size, const void *host,
                                  const int64_t *host_strides, void *memory,
                                  const int64_t *strides);

#endif
