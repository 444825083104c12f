/* SPDX-License-Identifier: BSD-3-Clause */
/* Moving boxes of elements between host memory and a device's, by as few and as large copies of
 * the device as the strides allow. */
#ifndef DEVICE_DEVICE_COPY_H
#define DEVICE_DEVICE_COPY_H

#include "dcp/device.h"

/* Strides count elements; they may be negative, and at the source 0. The device is not the host.
 * Where the elements do not lie on the host in the order that they have on the device, they go
 * through a buffer of as many bytes: callers bound the box. Errors: DCP_ERR_NO_MEMORY, and the
 * device's. */
dcp_status device_copy_to_host(const dcp_device *device, int32_t ndim, const int64_t *sizes,
                               size_t element_size, const void *memory, const int64_t *strides,
                               void *host, const int64_t *host_strides);
/* The same, put into the device's queue and not waited for, if the device can and the elements lie
 * on the host in the order of the device; else it is waited for. */
dcp_status device_start_to_host(const dcp_device *device, int32_t ndim, const int64_t *sizes,
                                size_t element_size, const void *memory, const int64_t *strides,
                                void *host, const int64_t *host_strides);
dcp_status device_copy_from_host(const dcp_device *device, int32_t ndim, const int64_t *sizes,
                                 size_t element_size, const void *host, const int64_t *host_strides,
                                 void *memory, const int64_t *strides);
/* As device_start_to_host(), the other way. */
dcp_status device_start_from_host(const dcp_device *device, int32_t ndim, const int64_t *sizes,
                                  size_t element_size, const void *host,
                                  const int64_t *host_strides, void *memory,
                                  const int64_t *strides);

#endif
