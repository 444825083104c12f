/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file status.h
 * @brief How calls end: one status code, and a message that describes a failure.
 *
 * Every call that can fail returns a #dcp_status, or a pointer that is NULL on failure. The details
 * (which key, file, offset, rank; what was expected and found) are in a message, which belongs to
 * the calling thread.
 */
#ifndef DCP_STATUS_H
#define DCP_STATUS_H

#include "version.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Outcome of a call. Values are explicit, grouped with gaps, and never renumbered. */
typedef enum dcp_status {
    DCP_OK = 0,

    /* The caller asked for something that is not possible. */
    DCP_ERR_ARGUMENT = 10,    /**< an argument is NULL, out of range or contradicts another */
    DCP_ERR_UNSUPPORTED = 11, /**< well-formed, but this build or version cannot do it */
    DCP_ERR_STATE = 12,       /**< the call is not possible in the current state of the handle (a
                                   broken group) */

    /* Resources. */
    DCP_ERR_NO_MEMORY = 20,  /**< an allocation failed */
    DCP_ERR_FILE_LIMIT = 21, /**< the process, or the system, has too many files open */
    DCP_ERR_IO = 30,         /**< the operating system reported an I/O error */
    DCP_ERR_NO_SPACE = 31,   /**< the disk or quota is full */
    DCP_ERR_NOT_FOUND = 32,  /**< the file, directory, checkpoint or name does not exist */
    DCP_ERR_EXISTS = 33,     /**< a checkpoint exists and overwriting was refused */
    DCP_ERR_DEVICE = 34,     /**< a device failed: a copy, an allocation, the device itself */
    DCP_ERR_BUSY = 35,       /**< another save owns the directory, or has changed it meanwhile */

    /* Stored data is wrong. */
    DCP_ERR_FORMAT = 40,   /**< stored bytes violate the format, or exceed a limit */
    DCP_ERR_CHECKSUM = 41, /**< stored bytes do not match their checksum */
    DCP_ERR_FOREIGN = 42,  /**< a file belongs to another save */

    /* The checkpoint does not match the request. */
    DCP_ERR_MISSING_KEY = 50,    /**< wanted, but not in the checkpoint */
    DCP_ERR_UNEXPECTED_KEY = 51, /**< in the checkpoint, but not wanted */
    DCP_ERR_SHAPE = 52,          /**< global shapes differ */
    DCP_ERR_DTYPE = 53,          /**< dtypes differ and conversion was not enabled */
    DCP_ERR_KIND = 54,           /**< a tensor where an object is, or the reverse */
    DCP_ERR_COVERAGE = 55,       /**< chunks leave a hole */
    DCP_ERR_OVERLAP = 56,        /**< chunks overlap */
    DCP_ERR_DUPLICATE = 57,      /**< two items have the same name */
    DCP_ERR_REPLICA = 58,        /**< replicas differ between ranks */

    /* Other ranks. */
    DCP_ERR_GROUP = 70,   /**< communication failed */
    DCP_ERR_TIMEOUT = 71, /**< a rank did not take part before the deadline */
    /** A save was committed, or may have been, but not every rank has confirmed it, or the storage
     * has not confirmed that it is durable. The message says which. In each case the checkpoint at
     * the path is whole. */
    DCP_ERR_UNCONFIRMED = 72,

    DCP_ERR_CALLBACK = 80,  /**< a callback returned a value that is not a dcp_status */
    DCP_ERR_CANCELLED = 81, /**< by the caller's progress function, or dcp_future_cancel() */
    DCP_ERR_INTERNAL = 90   /**< the library contradicts itself; please report it */
} dcp_status;

/** @return the status in words, such as "shape mismatch"; static storage, never NULL. */
DCP_API const char *dcp_status_string(dcp_status status);

/**
 * @return the message of the calling thread's most recent failure; never NULL, "" if there was
 * none. Valid until the thread's next call into the library.
 */
DCP_API const char *dcp_error_message(void);

/**
 * Describes a failure from inside a callback (a group, a stateful entry), so that the message
 * reaches every rank.
 * @return @p status, so that a callback can `return dcp_error_set(...)`.
 */
DCP_API dcp_status dcp_error_set(dcp_status status, const char *format, ...) DCP_PRINTF(2, 3);

#ifdef __cplusplus
}
#endif

#endif
