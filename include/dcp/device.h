/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file device.h
 * @brief Memory that is not host memory: the functions of a device that the library needs to save
 * from it and to load into it.
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

/** The operations of a device; see below. */
typedef struct dcp_device_operations dcp_device_operations;

/** Where memory is. The zero value is host memory. The struct will not grow, because it is copied
 * by value. Everything that it points to must stay valid while a tree refers to it. */
typedef struct dcp_device {
    const dcp_device_operations *operations; /**< NULL: host memory */
    int32_t index;                           /**< which of several devices of this kind */
    void *queue; /**< for the operations: the queue of the caller's work (a CUDA stream) */
} dcp_device;

/**
 * The operations of one kind of device; all but those marked as optional are required. Each returns
 * DCP_OK or a failure (DCP_ERR_DEVICE, DCP_ERR_NO_MEMORY), and describes a failure with
 * dcp_error_set(). They may be called from any thread, several at a time.
 *
 * A copy moves @p height rows of @p width bytes, which begin @p pitch bytes apart on the device and
 * are contiguous on the host. None of them is 0, and @p pitch is at least @p width.
 *
 * The second half lets copies overlap with the caller's work and with the writing of files. A
 * device has all of these operations, from `page_lock` to `start_copy_from_host`, or none; without
 * them every copy is synchronous. In their comments, "the device's queue" is dcp_device::queue of
 * the device passed in: the caller's queue, or one from `queue_open`.
 */
struct dcp_device_operations {
    size_t size_of;   /**< sizeof(dcp_device_operations), so that the struct can grow */
    const char *name; /**< for messages: "cuda" */

    /** Allocates @p bytes (not 0) on the device, aligned for any element. */
    dcp_status (*allocate)(const dcp_device *device, size_t bytes, void **memory);
    /** Frees memory from `allocate`; called when the tree is freed. */
    void (*release)(const dcp_device *device, void *memory);

    /** Copies from the device, after all work that was in the device's queue; done on return. */
    dcp_status (*copy_to_host)(const dcp_device *device, void *host, const void *memory,
                               size_t pitch, size_t width, size_t height);
    /** Copies to the device, after all work that was in the device's queue; done on return. */
    dcp_status (*copy_from_host)(const dcp_device *device, void *memory, size_t pitch,
                                 const void *host, size_t width, size_t height);

    /** Optional. Whether @p memory is on this device. With it, a wrong pointer is an error before
     * anything is saved or loaded. */
    dcp_status (*holds)(const dcp_device *device, const void *memory, bool *held);

    /** Page-locks host memory, so that its copies overlap with other work and run at full speed. */
    dcp_status (*page_lock)(const dcp_device *device, void *host, size_t bytes);
    void (*page_unlock)(const dcp_device *device, void *host);

    /** Makes a queue for the library. Its work has a lower priority than the caller's, if the
     * device has priorities. */
    dcp_status (*queue_open)(const dcp_device *device, void **queue);
    /** Frees a queue without pending work. */
    void (*queue_close)(const dcp_device *device, void *queue);

    /** Makes an event that can be recorded in queues. */
    dcp_status (*event_open)(const dcp_device *device, void **event);
    /** Frees an event, even if it is not reached yet. */
    void (*event_close)(const dcp_device *device, void *event);
    /** Records the event after the current work of the device's queue; replaces an earlier
     * record. */
    dcp_status (*event_record)(const dcp_device *device, void *event);
    /** Work that is put into the device's queue from now on begins only when @p event is
     * reached. */
    dcp_status (*event_follow)(const dcp_device *device, void *event);
    /** Waits until @p event is reached; also returns earlier failures in its queue. An event that
     * was never recorded is reached. */
    dcp_status (*event_wait)(const dcp_device *device, void *event);
    /** Asks whether event_wait() would return at once. */
    dcp_status (*event_reached)(const dcp_device *device, void *event, bool *reached);

    /** As copy_to_host and copy_from_host, but only put into the device's queue, without a wait.
     * After a failure a part of the copy may still be running. */
    dcp_status (*start_copy_to_host)(const dcp_device *device, void *host, const void *memory,
                                     size_t pitch, size_t width, size_t height);
    dcp_status (*start_copy_from_host)(const dcp_device *device, void *memory, size_t pitch,
                                       const void *host, size_t width, size_t height);
};

#ifdef __cplusplus
}
#endif

#endif
