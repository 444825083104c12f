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

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What a device can do; see below. */
typedef struct dcp_device_operations dcp_device_operations;

/** Where memory is. The zero value is host memory. Copied by value; what it points to is borrowed
 * for as long as a tree refers to it. */
typedef struct dcp_device {
    const dcp_device_operations *operations; /**< NULL: host memory */
    int32_t index;                           /**< which of several devices of this kind */
    void *queue; /**< for the operations: where the caller orders its own work (a CUDA stream) */
} dcp_device;

/**
 * The operations of one kind of device; all but those marked as optional are required. Each returns
 * DCP_OK or a failure (DCP_ERR_DEVICE, DCP_ERR_NO_MEMORY), whose story it tells with
 * dcp_error_set(). They may be called from any thread, several at a time.
 *
 * A copy takes place after all work that the caller had put in the device's queue before the save
 * or load, and is done when the call returns. It moves @p height rows of @p width bytes, which
 * begin
 * @p pitch bytes apart on the device and follow each other without gaps on the host. None of them
 * is 0, and @p pitch is at least @p width.
 */
struct dcp_device_operations {
    size_t size_of;   /**< sizeof(dcp_device_operations), so that the struct can grow */
    const char *name; /**< for messages: "cuda" */

    /** Allocates @p bytes (not 0) on the device, aligned for any element. */
    dcp_status (*allocate)(const dcp_device *device, size_t bytes, void **memory);
    /** Frees what `allocate` gave; called when the tree is freed. */
    void (*release)(const dcp_device *device, void *memory);

    /** Copies from the device. */
    dcp_status (*copy_to_host)(const dcp_device *device, void *host, const void *memory,
                               size_t pitch, size_t width, size_t height);
    /** Copies to the device. */
    dcp_status (*copy_from_host)(const dcp_device *device, void *memory, size_t pitch,
                                 const void *host, size_t width, size_t height);
};

#ifdef __cplusplus
}
#endif

#endif
