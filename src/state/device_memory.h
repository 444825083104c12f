/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices as callers supply them: checked before their first use, and named in every message of
 * theirs. */
#ifndef STATE_DEVICE_MEMORY_H
#define STATE_DEVICE_MEMORY_H

#include <stdbool.h>

#include "dcp/device.h"
#include "state/box.h"

static inline bool device_is_host(const dcp_device *device)
{
    return !device->operations;
}

/* Checks that all required operations are set, and all or none of the optional ones. */
dcp_status device_check(const dcp_device *device);
/* Whether copies may run beside other work. */
bool device_overlaps(const dcp_device *device);
/* Checks that the memory of a chunk is on its device, if the device can check that. */
dcp_status device_check_memory(const dcp_device *device, const void *memory, struct box box);

/* What an operation returned, with the device's name and index in front of the message. */
dcp_status device_end(const dcp_device *device, dcp_status status);

/* Host memory is aligned to 64 bytes. */
dcp_status device_memory_allocate(const dcp_device *device, size_t bytes, void **memory);
void device_memory_release(const dcp_device *device, void *memory);

#endif
