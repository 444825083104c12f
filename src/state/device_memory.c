/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/device_memory.h"

#include <inttypes.h>

#include "base/error.h"
#include "base/memory.h"

#define HOST_ALIGNMENT 64

/* The operations for overlapping copies are all set, or none is. */
static bool overlap_is_whole(const dcp_device_operations *operations)
{
    bool all = operations->page_lock && operations->page_unlock && operations->queue_open &&
               operations->queue_close && operations->event_open && operations->event_close &&
               operations->event_record && operations->event_follow && operations->event_wait &&
               operations->event_reached && operations->start_copy_to_host &&
               operations->start_copy_from_host;
    bool any = operations->page_lock || operations->page_unlock || operations->queue_open ||
               operations->queue_close || operations->event_open || operations->event_close ||
               operations->event_record || operations->event_follow || operations->event_wait ||
               operations->event_reached || operations->start_copy_to_host ||
               operations->start_copy_from_host;
    return all == any;
}

/* A larger struct comes from a newer caller; the additional operations are ignored. */
dcp_status device_check(const dcp_device *device)
{
    const dcp_device_operations *operations = device->operations;
    if (!operations)
        return DCP_OK;
    if (operations->size_of < sizeof *operations)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "the device's operations have %zu bytes, expected at least %zu",
                             operations->size_of, sizeof *operations);
    if (!operations->name)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the device has no name");
    if (!operations->allocate || !operations->release || !operations->copy_to_host ||
        !operations->copy_from_host)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the device \"%s\" lacks a required operation",
                             operations->name);
    if (!overlap_is_whole(operations))
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "the device \"%s\" has some of the operations for overlapping copies, "
                             "and lacks others",
                             operations->name);
    return DCP_OK;
}

bool device_overlaps(const dcp_device *device)
{
    return device->operations && device->operations->start_copy_to_host;
}

dcp_status device_check_memory(const dcp_device *device, const void *memory, struct box box)
{
    bool held = true;
    if (device_is_host(device) || !device->operations->holds || !memory || box_volume(box) == 0)
        return DCP_OK;
    RETURN_IF_ERROR(device_end(device, device->operations->holds(device, memory, &held)));
    if (held)
        return DCP_OK;
    return dcp_error_set(DCP_ERR_ARGUMENT, "%s:%" PRId32 ": the memory at %p is not on this device",
                         device->operations->name, device->index, memory);
}

dcp_status device_end(const dcp_device *device, dcp_status status)
{
    if (status == DCP_OK)
        return DCP_OK;
    return error_prefix(error_checked(status, "an operation"), "%s:%" PRId32,
                        device->operations->name, device->index);
}

dcp_status device_memory_allocate(const dcp_device *device, size_t bytes, void **memory)
{
    *memory = NULL;
    if (device_is_host(device)) {
        *memory = memory_allocate_aligned(HOST_ALIGNMENT, bytes);
        return *memory ? DCP_OK : error_no_memory(bytes, "a chunk");
    }
    /* A chunk without elements has memory as well, but devices never allocate zero bytes. */
    dcp_status status = device->operations->allocate(device, bytes > 0 ? bytes : 1, memory);
    if (status == DCP_OK && !*memory)
        status = dcp_error_set(DCP_ERR_DEVICE,
                               "allocating %zu bytes succeeded, but returned no memory", bytes);
    return device_end(device, status);
}

void device_memory_release(const dcp_device *device, void *memory)
{
    if (device_is_host(device))
        memory_release_aligned(memory);
    else
        device->operations->release(device, memory);
}
