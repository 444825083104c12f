/* SPDX-License-Identifier: BSD-3-Clause */
/* A shared object in front of the C library and of liburing, whose calls fail on purpose. What
 * stands on it comes before them in the order of symbols: by being linked first, or by LD_PRELOAD.
 * Calls are counted and fail only while that is armed, on all threads. */
#ifndef PRELOAD_FAILING_CALLS_H
#define PRELOAD_FAILING_CALLS_H

#include <stdbool.h>

enum call_kind {
    CALL_OPEN,
    CALL_CLOSE, /* closes, and reports a failure */
    CALL_PREAD,
    CALL_PWRITE,
    CALL_FSYNC,
    CALL_FALLOCATE,
    CALL_FSTAT,
    CALL_STAT,
    CALL_STATFS, /* fstatfs, fstatvfs */
    CALL_RENAME, /* renameat, renameat2 */
    CALL_LINK,
    CALL_UNLINK,
    CALL_MKDIR,
    CALL_RMDIR,
    CALL_OPENDIR,
    CALL_READDIR,
    CALL_MMAP,
    CALL_ADVISE, /* posix_fadvise, sync_file_range, madvise */
    CALL_CACHESTAT,
    CALL_RANDOM,
    CALL_THREAD,
    CALL_RING_OPEN,
    CALL_RING_PROBE,
    CALL_RING_SUBMIT,
    CALL_RING_WAIT,
    CALL_RING_TRANSFER, /* its completion says EBADF, whatever error is asked for */
    CALL_KIND_COUNT
};

/* In the place of an error: half of what was asked for is moved, if that is more than a byte. */
#define FAILURE_SHORT (-1)
/* The call does what it should, and reports EIO all the same, as over a network. */
#define FAILURE_LATE (-2)
/* The process ends by SIGKILL before the call. */
#define FAILURE_KILL (-3)

/* Fails the n-th call of a kind from now on (0: none), or that one and all after it, with an errno
 * value or one of the above. */
void failing_calls_arm(enum call_kind kind, long n, bool from_then_on, int failure);
/* Returns how many calls failed. */
long failing_calls_disarm(void);
/* Calls of a kind while it was armed last. */
long failing_calls_count(enum call_kind kind);
/* Whether the file that failed to be synced last, while it was armed, has this in its name. */
bool failing_calls_unsynced(const char *name);

#endif
