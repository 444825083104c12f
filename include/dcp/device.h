/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file device.h
 * @brief Memory that is not host memory: what the library needs of a device to save from it and to
 * load into it.
 *
 * A device is an interface: the library reaches its memory through a few operations and never
 * touches it itself. libdcp_cuda supplies them for CUDA (dcp/cuda.h).
 */
#ifndef DCP_DEVICE_H
#define DCP_DEVICE_H

#include <stdbool.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What a device can do; see below. */
typedef struct dcp_device_operations dcp_device_operations;

/** Where memory is. The zero value is host memory. Copied by value, so that the struct will not
 * grow; what it points to is borrowed for as long as a tree refers to it. */
typedef struct dcp_device {
    const dcp_device_operations *operations; /**< NULL: host memory */
    int32_t index;                           /**< which of several devices of this kind */
    void *queue; /**< for the operations: where the caller orders its own work (a CUDA stream) */
} dcp_device;

/**
 * The operations of one kind of device; all but those marked as optional are required. Each returns
 * DCP_OK or a failure (DCP_ERR_DEVICE, DCP_ERR_NO_MEMORY), and describes a failure with
 * dcp_error_set(). They may be called from any thread, several at a time.
 *
 * A copy moves @p height rows of @p width bytes, which begin @p pitch bytes apart on the device and
 * are contiguous on the host. None of them is 0, and @p pitch is at least @p width.
 *
 * The second half lets copies run beside the caller's own work and beside the writing of files. It
 * is optional as a whole: a device has all of it from `page_lock` to `start_copy_from_host`, or
 * none; without it every copy is synchronous. There, "the device's queue" is dcp_device::queue of
 * the device passed in, which is the caller's, or one that `queue_open` made.
 */
struct dcp_device_operations {
    size_t size_of;   /**< sizeof(dcp_device_operations), so that the struct can grow */
    const char *name; /**< for messages: "cuda" */

    /** Allocates @p bytes (not 0) on the device, aligned for any element. */
    dcp_status (*allocate)(const dcp_device *device, size_t bytes, void **memory);
    /** Frees what `allocate` gave; called when the tree is freed. */
    void (*release)(const dcp_device *device, void *memory);

    /** Copies from the device, after all work that was in the device's queue; done on return. */
    dcp_status (*copy_to_host)(const dcp_device *device, void *host, const void *memory,
                               size_t pitch, size_t width, size_t height);
    /** Copies to the device, after all work that was in the device's queue; done on return. */
    dcp_status (*copy_from_host)(const dcp_device *device, void *memory, size_t pitch,
                                 const void *host, size_t width, size_t height);

    /** Optional. Whether @p memory lies on this device; with it, a pointer that does not is an
     * error before anything is saved or loaded. */
    dcp_status (*holds)(const dcp_device *device, const void *memory, bool *held);

    /** Page-locks host memory, so that copies of it run beside other work and at full speed. */
    dcp_status (*page_lock)(const dcp_device *device, void *host, size_t bytes);
    void (*page_unlock)(const dcp_device *device, void *host);

    /** Makes a queue for the library. Its work has a lower priority than the caller's, if the
     * device has priorities. */
    dcp_status (*queue_open)(const dcp_device *device, void **queue);
    /** Frees a queue with nothing under way in it. */
    void (*queue_close)(const dcp_device *device, void *queue);

    /** Makes a mark that can be put into queues. */
    dcp_status (*event_open)(const dcp_device *device, void **event);
    /** Frees a mark, also one that is not reached yet. */
    void (*event_close)(const dcp_device *device, void *event);
    /** Marks the end of what is in the device's queue now; an earlier mark is forgotten. */
    dcp_status (*event_record)(const dcp_device *device, void *event);
    /** What is put into the device's queue from now on begins only when @p event is reached. */
    dcp_status (*event_follow)(const dcp_device *device, void *event);
    /** Waits until @p event is reached; also reports what failed in its queue before it. An event
     * that was never recorded is reached. */
    dcp_status (*event_wait)(const dcp_device *device, void *event);
    /** Asks whether event_wait() would return at once. */
    dcp_status (*event_reached)(const dcp_device *device, void *event, bool *reached);

    /** As copy_to_host and copy_from_host, but put into the device's queue and not waited for.
     * After a failure part of the copy may be under way. */
    dcp_status (*start_copy_to_host)(const dcp_device *device, void *host, const void *memory,
                                     size_t pitch, size_t width, size_t height);
    dcp_status (*start_copy_from_host)(const dcp_device *device, void *memory, size_t pitch,
                                       const void *host, size_t width, size_t height);
};

#ifdef __cplusplus
}
#endif

#endif
