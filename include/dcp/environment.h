/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file environment.h
 * @brief What the library takes from the process around it: memory and a place for log lines; and
 * memory that suits it.
 *
 * Both are process-wide and meant to be set once, before the first other call; the library keeps no
 * other global state but the thread-local error.
 */
#ifndef DCP_ENVIRONMENT_H
#define DCP_ENVIRONMENT_H

#include <stddef.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Where all memory of the library comes from. Each function may be called from any thread.
 * Blocks must be aligned for any type (as malloc's); `allocate` may return NULL, which the library
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
 * and Linux is asked to put it in large pages, all but what is left of the last 2 MiB; below that
 * it begins at a multiple of 4 KiB. Devices transfer from and to large pages several times faster,
 * as there is less to gather, and copies from and to them are faster as well. Where the system
 * grants none (/sys/kernel/mm/transparent_hugepage/enabled is "never", or memory is in fragments)
 * it is ordinary memory, and all works as well; see dcp_memory_in_large_pages(). Pages that are
 * reserved for hugetlbfs are left to those whom they are reserved for: an allocator can take them.
 * Thread-safe.
 * @param size may be 0.
 * @param memory owned by the caller, its content is undefined; NULL on failure.
 * Errors: DCP_ERR_NO_MEMORY.
 */
DCP_API dcp_status dcp_memory_allocate(size_t size, void **memory);
/** Frees what dcp_memory_allocate() gave; NULL is allowed. The allocator must be the same. */
DCP_API void dcp_memory_free(void *memory);
/**
 * Counts the bytes of a range that are in large pages at present, no matter who allocated it, by
 * looking at the page tables of the process. Memory gets its pages when it is written for the first
 * time, so that the answer is 0 before. Thread-safe.
 * @return 0 also if Linux does not report it. Before Linux 6.7 the result is a lower bound: at
 * least this many bytes are, and reading that list takes as long as the process has mappings.
 */
DCP_API size_t dcp_memory_in_large_pages(const void *memory, size_t size);

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
 * Sets after how many seconds of waiting for other ranks a call says so in the log, as a warning:
 * the phase, the time waited, and the missing ranks as far as the group knows. The warning is
 * repeated each time the wait has doubled. The default is 10; 0: never. Not
 * thread-safe against running calls.
 */
DCP_API void dcp_set_log_waits(double after_seconds);

/**
 * How the bytes of files are moved: flags, at most one of each pair. Without a flag the library
 * chooses: small files are written and read plainly, large ones by what is available, and a log
 * line says once what is not; what the page cache holds is read from there. A flag holds for files
 * of any size, and if it is not available, the call fails with DCP_ERR_UNSUPPORTED. The files'
 * bytes are the same.
 */
typedef enum dcp_io {
    DCP_IO_AUTO = 0,
    DCP_IO_RING = 1,    /**< several transfers at a time, by io_uring */
    DCP_IO_POOL = 2,    /**< the same by a few threads */
    DCP_IO_DIRECT = 4,  /**< around the page cache (O_DIRECT) */
    DCP_IO_BUFFERED = 8 /**< through the page cache */
} dcp_io;

/**
 * The priority among those who use the disk. It is Linux's I/O priority of the threads that move
 * bytes for a save or load, and of their transfers by io_uring; the caller's threads have their own
 * again when the call returns. It is heeded by I/O schedulers that know priorities (bfq,
 * mq-deadline), and for bytes that go around the page cache: others are written by the kernel, at
 * its own time.
 */
typedef enum dcp_io_priority {
    DCP_IO_PRIORITY_KEPT = 0, /**< that of the calling threads */
    DCP_IO_PRIORITY_LOW = 1,  /**< the lowest of the usual class */
    DCP_IO_PRIORITY_IDLE = 2  /**< only while no other process uses the disk: it may never finish */
} dcp_io_priority;

/** What is to become of the pages that a save's shard files have in the page cache: those who load
 * the checkpoint soon, on this machine, want them there; others want the memory. Storages without a
 * page cache take no notice. */
typedef enum dcp_page_cache {
    /** What is written fastest: large files go around the page cache where the file system lets
     * them, and what goes through it stays. */
    DCP_PAGE_CACHE_ANY = 0,
    /** They stay. Files go through the page cache, which starts to write early, so that the sync
     * at the end is short. Not with #DCP_IO_DIRECT. */
    DCP_PAGE_CACHE_KEPT = 10,
    /** None is left. Files go around the page cache, and what has to go through it is dropped when
     * it is durable; with dcp_save_options::skip_sync small files may stay. */
    DCP_PAGE_CACHE_DROPPED = 20,
    /** Kept if the machine has plenty of memory free, dropped otherwise. Plenty is twice the bytes
     * that this rank writes, and as many for each further rank of the group, up to seven, which
     * may be on the same machine. What is free is what Linux says is available, and no more than
     * the limits of the process's control groups leave. With #DCP_IO_DIRECT dropped. */
    DCP_PAGE_CACHE_AUTO = 30
} dcp_page_cache;

#ifdef __cplusplus
}
#endif

#endif
