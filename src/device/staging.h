/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies of tensors' elements, taken in the background so that training may change the tensors, and
 * handed on to whoever writes them.
 *
 * Either all of it is in memory at the same time, or, under a limit, it comes in waves: what has
 * been read makes room for what follows. Sources on devices are copied in a queue of our own,
 * behind what was in the caller's queue when the staging began. */
#ifndef DEVICE_STAGING_H
#define DEVICE_STAGING_H

#include "base/clock.h"
#include "base/error.h"
#include "device/staging_pool.h"

/* The least that a limit may be. */
#define STAGING_LIMIT_MINIMUM ((uint64_t)256 << 10)

/* One tensor chunk, or a part of it. */
struct staging_source {
    const char *name; /* for messages; stays */
    dcp_device device;
    const void *from; /* the first element */
    int32_t ndim;
    const int64_t *sizes; /* these two are needed only while the staging begins */
    const int64_t *strides;
    size_t element_size;
    size_t phase; /* where in a page a large copy begins, so that it lies as in its file */
};

struct staging_options {
    uint64_t limit;      /* of the pool; 0: as much as it takes */
    uint32_t threads;    /* that copy; 0: as is worth it */
    bool page_lock;      /* of the pool, where a source is on a device */
    bool detect_changes; /* sources that changed between begin and copy are a failure */
};

struct staging;

/* Begins to copy. Sources without elements are fine. The sources' memory must stay as it is until
 * staging_wait() returns DCP_OK, and be there until then or until staging_free(). */
dcp_status staging_begin(struct staging_pool *pool, const struct staging_source *sources,
                         size_t count, const struct staging_options *options,
                         struct staging **staging);
/* How many threads copy so many bytes. wanted: 0: as is worth it. */
size_t staging_thread_count(uint64_t bytes, uint32_t wanted);
/* Waits until everything has been copied; DCP_ERR_TIMEOUT if that takes longer. */
dcp_status staging_wait(struct staging *staging, struct deadline deadline);
/* Whether staging_wait() would return at once. */
bool staging_is_over(struct staging *staging);
/* Bytes of all sources. */
uint64_t staging_bytes(const struct staging *staging);

/* Whether sources may be taken as a whole. */
bool staging_is_whole(const struct staging *staging);
/* Of a whole staging: waits for one source and gives its elements, row-major. */
dcp_status staging_take(struct staging *staging, size_t source, const void **bytes);
/* Copies the next bytes of a source's elements, row-major, from position on. Under a limit each
 * byte is read once, in order, of sources in the order that they have. */
dcp_status staging_read(struct staging *staging, size_t source, uint64_t position, void *bytes,
                        size_t size);

/* Some of it will not be read. Under a limit that ends it, for everyone who waits or will, with the
 * calling thread's story, as no room would be made any more; a whole staging goes on. */
void staging_stop(struct staging *staging);
/* Nobody will read any more: sources and the pool are left alone from here on. What was not copied
 * by then fails for everyone who waits for it, with the calling thread's story. NULL is fine. */
void staging_end(struct staging *staging);
/* The same; then the staging is gone. NULL is fine. */
void staging_free(struct staging *staging);

#endif
