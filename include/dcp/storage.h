/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file storage.h
 * @brief The storage interface: where the bytes of checkpoints are kept. For implementers of a
 * storage.
 *
 * A storage is one table of functions. The library has two: files (dcp_storage_files()) and memory
 * (dcp_storage_memory_new()). Everything else is built on the table and works on every storage:
 * shard files with checksums, several files in parallel, compression, partial reads, cooperative
 * reads, safe overwriting, the commit, retries, limits, verification, figures and progress. Pass a
 * custom storage in the options of the call that takes a path: dcp_save_options::storage,
 * dcp_load_options::storage, dcp_open_options::storage.
 *
 * The model: a checkpoint's id ("checkpoints/step_1000", "s3://bucket/run/step_1000") names a
 * *directory*, which holds *files* by name. Names are UTF-8, relative, with at most 255 bytes
 * between slashes; "pp0/.metadata" in a directory is ".metadata" in its subdirectory pp0. A file is
 * written once, in parts at known offsets, and then *sealed*: it is complete and does not change
 * until it is removed. Small files that readers look for (`.metadata`) are *published*: they are
 * written in the same way, and the call that seals them says whether they may replace the previous
 * file.
 *
 * Eight functions are required: list, remove, open_file, read, close_file, create, write and seal.
 * examples/storages has an object store in memory and a tar archive.
 *
 * Failures: each function returns DCP_OK or a failure, and describes the failure and names the file
 * with dcp_error_set(). A missing file or directory is DCP_ERR_NOT_FOUND. A return value that is
 * not a dcp_status becomes DCP_ERR_CALLBACK. Functions may be called from any thread, several at a
 * time, unless stated otherwise.
 *
 * Functions marked "optional" may be NULL; their comments say what the library does then.
 */
#ifndef DCP_STORAGE_H
#define DCP_STORAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "environment.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Performance properties of a directory. All zero: none in particular. */
typedef struct dcp_storage_traits {
    size_t size_of; /**< sizeof(dcp_storage_traits), set by the library */
    /** Ranges up to this many bytes are better read in one request than in several, because each
     * request has a fixed cost (a network round trip); 0: small requests are cheap. */
    size_t request_size;
    /** Requests go over a network, and all ranks share its bandwidth. One rank may then read for
     * others (dcp_load_options::reading). */
    bool far;
} dcp_storage_traits;

/** Flags for opening a directory. */
typedef enum dcp_storage_open {
    DCP_OPEN_CREATE = 1,  /**< create the directory and its parents if they do not exist */
    DCP_OPEN_DURABLE = 2, /**< created directories must survive a power failure */
    DCP_OPEN_NO_LINK = 4  /**< the caller of the library did not choose the id: refuse a symbolic
                             link */
} dcp_storage_open;

/** Options for opening or creating a file. */
typedef struct dcp_storage_access {
    size_t size_of;           /**< sizeof(dcp_storage_access), set by the library */
    uint32_t io;              /**< flags of #dcp_io; a storage may ignore those that it does not
                                   support */
    dcp_io_priority priority; /**< of the transfers */
    uint32_t threads;         /**< maximum number of threads that a queue may start; 0: the storage
                                   decides */
    /** Reading: the caller of the library chose the name; it was not found in a checkpoint. If
     * false, symbolic links must not be followed. */
    bool trusted;
    /** Creating: the sealed file must survive a power failure. */
    bool durable;
    /** Creating: maximum number of bytes that will be written, without the footer of a shard file
     * (8 bytes for each 4 KiB, and some more). */
    uint64_t size;
    /** Creating: the file may be far smaller than `size`, so do not reserve space. */
    bool estimated;
    /** Creating: a small file, of exactly `size` bytes, that may replace a file of the same name.
     * That file stays unchanged until seal(), whose condition says whether it is replaced. Never
     * set for a storage that has prepare(). */
    bool published;
    /** Creating, also for queues: whether the file's pages stay in the page cache. Never
     * #DCP_PAGE_CACHE_AUTO. A storage without a page cache may ignore it. */
    dcp_page_cache page_cache;
} dcp_storage_access;

/** An open file. Filled in by the storage, which may use `handle` to identify it. */
typedef struct dcp_storage_file {
    void *handle;
    uint64_t size; /**< size of the file; set when it is opened for reading */
    /**
     * A power of two: transfers whose memory, size and offset are multiples of it are fastest;
     * others work as well. The library uses memory in large pages for transfers of such files. 0:
     * alignment makes no difference.
     */
    size_t alignment;
} dcp_storage_file;

/** A transfer in progress. The bytes and the struct stay at their addresses until it is
 * finished. */
typedef struct dcp_storage_transfer {
    dcp_storage_file *file;
    void *bytes; /**< the memory to read into or write from */
    size_t size;
    uint64_t offset;
    bool write;
    void *own; /**< for the storage, to attach its own data to the transfer */
} dcp_storage_transfer;

/** On which condition a file may appear. */
typedef enum dcp_storage_condition {
    DCP_PUBLISH_ALWAYS = 0,     /**< it replaces a file of the same name */
    DCP_PUBLISH_IF_ABSENT = 10, /**< DCP_ERR_EXISTS if a file of that name exists */
    DCP_PUBLISH_OVER = 20       /**< it replaces only the file with a given identity (If-Match).
                                   DCP_ERR_BUSY if another file or none has the name, or if another
                                   process is replacing it. With concurrent calls, each file is
                                   replaced at most once */
} dcp_storage_condition;

/** Size of an identity in bytes, including the terminating NUL. */
#define DCP_STORAGE_IDENTITY 96

/** Called for each name of a listing. A failure ends the listing and is its result. */
typedef dcp_status (*dcp_storage_visitor)(void *context, const char *name);

/** The table. `context` is passed to every function. A call of the library copies the table when it
 * begins. Everything that the table points to must stay valid until the call or asynchronous save
 * has ended, the checkpoint opened with it is closed, and its mappings are freed. */
typedef struct dcp_storage {
    size_t size_of; /**< sizeof(dcp_storage), so that the struct can grow */
    void *context;

    /** Whether this storage handles an id, such as "s3://bucket/step_1000". Optional: it handles
     * every id. Other ids are paths in the file system, unless they have a scheme ("name://"). */
    bool (*takes)(void *context, const char *id);

    /**
     * Opens a directory. A missing one is DCP_ERR_NOT_FOUND, unless it is to be created; an id that
     * names a file is DCP_ERR_KIND. A storage without directories opens any id; a directory that
     * was never written to is empty. If the storage can, an open directory stays the same one even
     * if the id names another one later; the file system does this. Files, publications and queues
     * are closed before their directory. Optional, together with close(): if both are NULL, the
     * functions below receive the id itself as the directory, a `char *` without trailing slashes.
     * @param flags of #dcp_storage_open.
     * @param directory a value of the storage, which is passed to the functions below.
     * @param created whether this call created the directory.
     */
    dcp_status (*open)(void *context, const char *id, uint32_t flags, void **directory,
                       bool *created);
    void (*close)(void *context, void *directory);
    /**
     * Removes an open directory if it is empty and its id still names it; otherwise it stays, which
     * is DCP_OK. Called when a save that created the directory fails (without open(), when any save
     * fails), and after a checkpoint was removed. Other processes may open the directory at the
     * same time to write into it. Then either their writes fail with DCP_ERR_NOT_FOUND, so that
     * they create it again, or they come first and the directory stays. Optional: directories stay.
     */
    dcp_status (*remove_directory)(void *context, void *directory);
    /** Describes the directory. Optional: all zero. @param traits zero except for size_of. */
    void (*describe)(void *context, void *directory, dcp_storage_traits *traits);
    /** Free space in bytes; UINT64_MAX: not known. Optional: not known. */
    dcp_status (*free_space)(void *context, void *directory, uint64_t *bytes);

    /** Lists the names in the directory, in any order. Of a name with slashes, the library takes
     * the part before the first slash, so it may be listed whole. A name may be listed several
     * times. Files that are not sealed may be listed or left out. The visitor does not call
     * functions of the table. */
    dcp_status (*list)(void *context, void *directory, dcp_storage_visitor visitor,
                       void *visitor_context);
    /** Removes a file. */
    dcp_status (*remove)(void *context, void *directory, const char *name);

    /** Opens a sealed or published file for reading; see dcp_storage_access. */
    dcp_status (*open_file)(void *context, void *directory, const char *name,
                            const dcp_storage_access *access, dcp_storage_file *file);
    /** Reads exactly @p size bytes, which lie inside the file. Called by any thread. */
    dcp_status (*read)(void *context, dcp_storage_file *file, void *bytes, size_t size,
                       uint64_t offset);
    void (*close_file)(void *context, dcp_storage_file *file);

    /** Creates a file. If a file of that name exists, the result is DCP_ERR_EXISTS, here or when
     * the file is sealed, unless it is published (dcp_storage_access::published). */
    dcp_status (*create)(void *context, void *directory, const char *name,
                         const dcp_storage_access *access, dcp_storage_file *file);
    /** Writes a part. Called by any thread; parts come in any order, each once. */
    dcp_status (*write)(void *context, dcp_storage_file *file, const void *bytes, size_t size,
                        uint64_t offset);
    /**
     * Completes a file of @p size bytes when all parts are written. It appears at once, and its
     * content is durable if dcp_storage_access::durable was set. Closes the file even on failure;
     * the library itself finds out whether a file appeared in spite of a failure. Allocate what
     * sealing a published file needs in create(): when seal() is called, other ranks have written
     * their files and wait.
     * @param condition whether a file of that name may be replaced; only a published file may
     * replace one. #DCP_PUBLISH_OVER is used only if the storage has identify().
     * @param identity for #DCP_PUBLISH_OVER: of the file to replace, from identify(); otherwise
     * NULL.
     */
    dcp_status (*seal)(void *context, dcp_storage_file *file, uint64_t size,
                       dcp_storage_condition condition, const char *identity);
    /** Called instead of seal(): discards and closes the file. Optional: close_file() is called. */
    void (*abandon)(void *context, dcp_storage_file *file);
    /** Makes the names of sealed, published and removed files durable. Optional: they already
     * are. */
    dcp_status (*sync)(void *context, void *directory);

    /* ---- optional: many transfers under way without a thread for each ---- */

    /** Opens a queue, for use by one thread, of at most @p depth transfers at a time. If @p access
     * requires something that is not available, the result is DCP_ERR_UNSUPPORTED. Memory limits
     * count 1 MiB for a queue. Optional: a few threads of the library call read() and write().
     * @param directory the first directory that is used; files of other directories of the storage
     * may use the queue as well (members of a union). */
    dcp_status (*queue_open)(void *context, void *directory, unsigned depth,
                             const dcp_storage_access *access, void **queue);
    /** Begins a transfer. queue_finish() reports failures. */
    void (*queue_start)(void *context, void *queue, dcp_storage_transfer *transfer);
    /** Waits until all bytes of a transfer have been moved, and returns its result. */
    dcp_status (*queue_finish)(void *context, void *queue, dcp_storage_transfer *transfer);
    /** Waits for transfers in progress and ignores their results, then closes the queue. Some
     * transfers may not have been finished.
     */
    void (*queue_close)(void *context, void *queue);

    /* ---- optional: what makes reading faster ---- */

    /** Whether a range is in fast memory and should be read at once. The library may remember that
     * it is while the file is open, and does not ask again. Optional: every range is. */
    bool (*is_cached)(void *context, dcp_storage_file *file, uint64_t offset, size_t size);
    /** Announces that a range will be read soon. Optional. */
    void (*expect)(void *context, dcp_storage_file *file, uint64_t offset, size_t size);
    /** Maps a range into memory, without a copy, until unmap(); the file may be closed before that.
     * Optional: dcp_checkpoint_map_chunk() is DCP_ERR_UNSUPPORTED. @param mapping a value of the
     * storage for unmap(). */
    dcp_status (*map)(void *context, dcp_storage_file *file, uint64_t offset, size_t size,
                      const void **bytes, void **mapping);
    void (*unmap)(void *context, void *mapping, const void *bytes, size_t size);
    /** How transfers were made, for dcp_figures: #DCP_IO_DIRECT if those of @p file bypassed the
     * page cache, #DCP_IO_RING if those of @p queue used io_uring. Either may be NULL. Optional:
     * neither. */
    uint32_t (*ways)(void *context, dcp_storage_file *file, void *queue);

    /** Writes an id that stays valid if the process changes its working directory: for a relative
     * path, the absolute path. The library uses it to open directories after the call that received
     * the id. Optional: ids are always valid. @param text buffer of @p size bytes, enough for a
     * path of PATH_MAX bytes before the id. */
    dcp_status (*absolute)(void *context, const char *id, char *text, size_t size);

    /** Gets the identity of the file that has a name: a string that differs between successive
     * files of this name (an ETag, a digest of the content). DCP_ERR_NOT_FOUND: there is no such
     * file. Optional: the library compares a digest of the content, then seals or publishes. A
     * change between these two steps goes unnoticed, so concurrent saves to one directory are only
     * detected by their marks (dcp/save.h). */
    dcp_status (*identify)(void *context, void *directory, const char *name,
                           char identity[DCP_STORAGE_IDENTITY]);

    /* ---- optional, together: publishing without create(), write() and seal(), for a storage whose
     * create() makes the name visible at once, as the file system does ---- */

    /** Writes a small file without making it visible. @param access `size` and `durable` are set: a
     * durable file must survive a power failure from when publish() makes it visible. Shards are
     * written between the two, so publish() is the better place to wait for the disk. @param
     * publication a value of the storage for publish() or retract(), one of which follows. */
    dcp_status (*prepare)(void *context, void *directory, const char *name, const void *bytes,
                          size_t size, const dcp_storage_access *access, void **publication);
    /** Makes the file visible atomically; it replaces a file of the same name. Must not allocate
     * memory. Ends the publication even on failure. DCP_ERR_BUSY if another process has removed the
     * prepared file. @param condition not #DCP_PUBLISH_OVER. @param visible whether the file is
     * visible, also after a failure. */
    dcp_status (*publish)(void *context, void *publication, dcp_storage_condition condition,
                          bool *visible);
    void (*retract)(void *context, void *publication);
    /** As publish(), under #DCP_PUBLISH_OVER. May allocate memory. Requires identify(). */
    dcp_status (*publish_over)(void *context, void *publication, const char *identity,
                               bool *visible);
} dcp_storage;

/** The function that a storage module exports. A module is a shared object that adds a storage to a
 * program that was built without it: `dcp --storage MODULE,ARGUMENT ls ID`. */
#define DCP_STORAGE_MODULE "dcp_storage_module"

/**
 * The type of that function.
 * @param argument the text after the module's name; "" if there is none.
 * @return the table, which stays valid until the process ends; NULL on failure, with a message set
 * by dcp_error_set().
 */
typedef const dcp_storage *(*dcp_storage_module_function)(const char *argument);

/** @return the table of the file system. Static. */
DCP_API const dcp_storage *dcp_storage_files(void);

/**
 * Lists each name in a directory once, sorted by bytes, including subdirectories. On a storage
 * without directories, a directory that was never written to is empty, not DCP_ERR_NOT_FOUND.
 * @param storage NULL: the file system, which is also used for ids that the storage does not
 * handle.
 * @param visitor a failure ends the listing and is the result. It may call the library. Errors:
 * DCP_ERR_NOT_FOUND, DCP_ERR_KIND for an id that names a file.
 */
DCP_API dcp_status dcp_storage_list(const dcp_storage *storage, const char *id,
                                    dcp_storage_visitor visitor, void *context);

/**
 * Removes one file of a directory, durably, even if it belongs to a checkpoint. To remove a
 * checkpoint, call dcp_checkpoint_remove().
 * @param storage as for dcp_storage_list().
 * @param name relative; it must not leave the directory. Errors: DCP_ERR_NOT_FOUND.
 */
DCP_API dcp_status dcp_storage_remove(const dcp_storage *storage, const char *id, const char *name);

/**
 * Makes a storage that keeps checkpoints in memory, for tests and for passing states between parts
 * of a program. It handles every id; trailing slashes are ignored. Freeing it discards its
 * contents.
 * @param storage owned by the caller.
 */
DCP_API dcp_status dcp_storage_memory_new(dcp_storage **storage);
/** Frees the storage. Everything in it must have been closed. NULL is allowed. */
DCP_API void dcp_storage_memory_free(dcp_storage *storage);

#ifdef __cplusplus
}
#endif

#endif
