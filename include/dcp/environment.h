/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file environment.h
 * @brief The library's allocator and log, memory for tensors in large pages, and how files are read
 * and written.
 *
 * Allocator and log are process-wide and should be set once, before any other call. Apart from the
 * thread-local error, the library has no other global state.
 */
#ifndef DCP_ENVIRONMENT_H
#define DCP_ENVIRONMENT_H

#include <stddef.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The allocator for all memory of the library. Each function may be called from any thread. Blocks
 * must be aligned for any type (as malloc's); `allocate` may return NULL, which the library
 * handles. The struct will not grow.
 */
typedef struct dcp_allocator {
    void *(*allocate)(void *context, size_t size);
    void *(*reallocate)(void *context, void *block, size_t size); /**< block may be NULL */
    void (*release)(void *context, void *block);                  /**< block may be NULL */
    void *context;
} dcp_allocator;

/**
 * Replaces the allocator. Not thread-safe; every block of the old one must have been released.
 * @param allocator copied; NULL restores malloc, realloc and free.
 */
DCP_API dcp_status dcp_set_allocator(const dcp_allocator *allocator);

/**
 * Allocates memory for tensors, by the allocator. From 2 MiB on it begins at a multiple of 2 MiB,
 * and Linux is asked to use large pages for it, except for the rest after the last whole 2 MiB.
 * Smaller blocks begin at a multiple of 4 KiB. Devices transfer from and to large pages several
 * times faster, because there are fewer pages to gather, and copies from and to them are faster as
 * well. If the system has no large pages (/sys/kernel/mm/transparent_hugepage/enabled is "never",
 * or memory is fragmented), ordinary memory is used; see dcp_memory_in_large_pages(). Of what
 * malloc() hands out a second time, ordinary pages are given back to the system first; what an
 * allocator of the caller's hands out a second time stays in the pages that it is in. Pages that
 * are reserved for hugetlbfs are not used; an allocator can use them. Thread-safe.
 * @param size may be 0.
 * @param memory owned by the caller, its content is undefined; NULL on failure.
 * Errors: DCP_ERR_NO_MEMORY.
 */
DCP_API dcp_status dcp_memory_allocate(size_t size, void **memory);
/** Frees memory from dcp_memory_allocate(); NULL is allowed. The allocator must be the same. */
DCP_API void dcp_memory_free(void *memory);
/**
 * Counts the bytes of a range that are in large pages at present, no matter who allocated it, by
 * looking at the page tables of the process. Memory gets its pages when it is written for the first
 * time, so that the answer is 0 before. Thread-safe.
 * @return 0 also if Linux does not report it. Before Linux 6.7 the result is a lower bound: at
 * least this many bytes are, and reading that list takes as long as the process has mappings.
 */
DCP_API size_t dcp_memory_in_large_pages(const void *memory, size_t size);
/**
 * Copies tensors' data that will not be used soon, as asynchronous saves copy it: like memcpy(),
 * but past the caches where the machine can, so that what is overwritten is not read first and the
 * caller's data stays in the caches. By the calling thread; several may copy different parts.
 * @param to must not overlap @p from. @param size in bytes; with 0 both may be NULL.
 */
DCP_API void dcp_memory_copy(void *to, const void *from, size_t size);

/** Severity of a log line. */
typedef enum dcp_log_level {
    DCP_LOG_ERROR = 10,
    DCP_LOG_WARNING = 20,
    DCP_LOG_INFO = 30,
    DCP_LOG_DEBUG = 40
} dcp_log_level;

/** Receives one line, without a newline. May be called from any thread, several at a time. */
typedef void (*dcp_log_function)(void *context, dcp_log_level level, const char *line);

/**
 * Sets where log lines go. The library prints nothing by itself: without a function, lines are
 * dropped. Not thread-safe against running calls.
 */
DCP_API void dcp_set_log(dcp_log_function function, void *context, dcp_log_level most_verbose);

/**
 * Sets after how many seconds of waiting for other ranks a call logs a warning: the phase, the time
 * waited, and the missing ranks if the group knows them. The warning is repeated each time the wait
 * has doubled. The default is 10; 0: never. Not thread-safe against running calls.
 */
DCP_API void dcp_set_log_waits(double after_seconds);

/**
 * How the bytes of files are moved: flags, at most one of each pair. Without a flag the library
 * chooses: small files use plain reads and writes, large ones the fastest available method, and a
 * log line says once what is not available. Data in the page cache is read from there. A flag
 * applies to files of any size; if it is not available, the call fails with DCP_ERR_UNSUPPORTED.
 * The bytes of the files are the same.
 */
typedef enum dcp_io {
    DCP_IO_AUTO = 0,
    DCP_IO_RING = 1,    /**< several transfers at a time, by io_uring */
    DCP_IO_POOL = 2,    /**< the same by a few threads */
    DCP_IO_DIRECT = 4,  /**< bypass the page cache (O_DIRECT) */
    DCP_IO_BUFFERED = 8 /**< through the page cache */
} dcp_io;

/**
 * The priority of disk I/O: Linux's I/O priority of the threads that transfer data for a save or
 * load, and of their transfers by io_uring. The caller's threads have their previous priority when
 * the call returns. It takes effect with I/O schedulers that support priorities (bfq, mq-deadline),
 * and for transfers that bypass the page cache; the kernel writes the page cache in the background.
 */
typedef enum dcp_io_priority {
    DCP_IO_PRIORITY_KEPT = 0, /**< that of the calling threads */
    DCP_IO_PRIORITY_LOW = 1,  /**< the lowest of the usual class */
    DCP_IO_PRIORITY_IDLE = 2  /**< only while no other process uses the disk: it may never finish */
} dcp_io_priority;

/** Whether the shard files of a save stay in the page cache. Keep them if the checkpoint is loaded
 * soon on this machine; otherwise the memory is better used for other data. Storages without a page
 * cache ignore it. */
typedef enum dcp_page_cache {
    /** The fastest way to write: large files bypass the page cache if the file system supports it;
     * other files stay in it. */
    DCP_PAGE_CACHE_ANY = 0,
    /** They stay. Files are written through the page cache, and writing to disk starts early, so
     * that the sync at the end is short. Not with #DCP_IO_DIRECT. */
    DCP_PAGE_CACHE_KEPT = 10,
    /** No pages stay. Files bypass the page cache; pages of other files are dropped when they are
     * durable. With dcp_save_options::skip_sync small files may stay. */
    DCP_PAGE_CACHE_DROPPED = 20,
    /** Kept if the machine has plenty of memory free, dropped otherwise. Plenty is twice the bytes
     * that this rank writes, and as many for each further rank of the group, up to seven, which
     * may be on the same machine. Free memory is the amount that Linux reports as available,
     * limited by the control groups of the process. With #DCP_IO_DIRECT they are dropped. */
    DCP_PAGE_CACHE_AUTO = 30
} dcp_page_cache;

#ifdef __cplusplus
}
#endif

#endif
