/* SPDX-License-Identifier: BSD-3-Clause */
/* Staging: copies tensors' elements in the background, so that training may change the tensors
 * while the copies are written.
 *
 * Either all copies are in memory at the same time, or, under a limit, they come in waves: copies
 * that have been read make room for the next ones. Sources on devices are copied in a queue of our
 * own, behind the work that was in the caller's queue when staging began. */
#ifndef DEVICE_STAGING_H
#define DEVICE_STAGING_H

#include "base/clock.h"
#include "base/error.h"
#include "device/staging_pool.h"

/* The smallest limit allowed. */
#define STAGING_LIMIT_MINIMUM ((uint64_t)256 << 10)

/* One tensor chunk, or a part of it. */
struct staging_source {
    const char *name; /* for messages; must stay valid */
    dcp_device device;
    const void *from; /* the first element */
    int32_t ndim;
    const int64_t *sizes; /* sizes and strides are needed only by staging_begin() */
    const int64_t *strides;
    size_t element_size;
    size_t phase; /* offset in a page at which a large copy begins, so that it is aligned as in its
                     file */
};

struct staging_options {
    uint64_t limit;      /* most bytes of the pool; 0: no limit */
    uint32_t threads;    /* threads that copy; 0: chosen by size */
    bool page_lock;      /* page-lock the pool if a source is on a device */
    bool detect_changes; /* fail if a source changed between begin and copy */
};

struct staging;

/* Begins to copy. Sources may have no elements. Their memory must not change until staging_wait()
 * returns DCP_OK, and must stay valid until then or until staging_free(). */
dcp_status staging_begin(struct staging_pool *pool, const struct staging_source *sources,
                         size_t count, const struct staging_options *options,
                         struct staging **staging);
/* The number of threads that copy so many bytes. wanted: the option; 0: chosen by size. */
size_t staging_thread_count(uint64_t bytes, uint32_t wanted);
/* Waits until everything has been copied, or the deadline has passed (DCP_ERR_TIMEOUT). */
dcp_status staging_wait(struct staging *staging, struct deadline deadline);
/* Whether staging_wait() would return at once. */
bool staging_is_over(struct staging *staging);
/* Bytes of all sources. */
uint64_t staging_bytes(const struct staging *staging);

/* Whether staging_take() may be used: the copies are all in memory. */
bool staging_is_whole(const struct staging *staging);
/* Waits for one source of a whole staging, and returns its elements, row-major. */
dcp_status staging_take(struct staging *staging, size_t source, const void **bytes);
/* Copies the next bytes of a source's elements, row-major, from position on. Under a limit, sources
 * must be read in their order, and each byte once and in order. */
dcp_status staging_read(struct staging *staging, size_t source, uint64_t position, void *bytes,
                        size_t size);

/* Says that some copies will not be read. Under a limit no more room would be made, so staging
 * ends: all current and later waits fail with the calling thread's message. A whole staging goes
 * on. */
void staging_stop(struct staging *staging);
/* Says that no copies will be read any more: sources and the pool are not accessed from here on.
 * Waits for pieces that were not copied yet fail with the calling thread's message. NULL is
 * allowed. */
void staging_end(struct staging *staging);
/* The same, and frees the staging. NULL is allowed. */
void staging_free(struct staging *staging);

#endif
