/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file storage.h
 * @brief Where the bytes of checkpoints are kept, for those who implement a storage.
 *
 * A storage is one table of functions. The library brings two: files (dcp_storage_files()) and
 * memory (dcp_storage_memory_new()). Everything else stands above the table and works on every
 * storage: shard files with checksums, several of them side by side, compression, partial reads,
 * cooperative reads, safe overwriting, the commit, retries, limits, verification, figures and
 * progress. A storage of your own is passed wherever a path is: dcp_save_options::storage,
 * dcp_load_options::storage, dcp_open_options::storage.
 *
 * The model: a checkpoint's id ("checkpoints/step_1000", "s3://bucket/run/step_1000") names a
 * *directory*, which holds *files* by name. Names are UTF-8, relative, of at most 255 bytes between
 * slashes; "pp0/.metadata" in a directory is ".metadata" in the directory pp0 below it. A file is
 * written once, in parts whose offsets are known beforehand, and then *sealed*: from then on it is
 * whole and never changes, until it is removed. Small files that others look for (`.metadata`) are
 * *published*: they are written likewise, and sealing them says whether they may take the place of
 * the one before.
 *
 * The least that a storage must have is eight functions: list, remove, open_file, read, close_file,
 * create, write and seal. examples/storages has an object store in memory and a tar archive.
 *
 * Failures: each function returns DCP_OK or a failure, and says what happened, and to which file,
 * by dcp_error_set(). Anything that is not there is DCP_ERR_NOT_FOUND. A value that is no status
 * becomes DCP_ERR_CALLBACK. Functions may be called from any thread, several at a time, unless said
 * otherwise.
 *
 * Functions that say "optional" may be NULL; then the library does without, as said there.
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

/** What a directory of a storage is good at. All zero: nothing in particular. */
typedef struct dcp_storage_traits {
    size_t size_of; /**< sizeof(dcp_storage_traits), set by the library */
    /** Bytes that are better asked for at once than in parts, since each request has a price of its
     * own (a message over a network); 0: small requests are cheap. */
    size_t request_size;
    /** Each request goes over a network, and ranks share what the storage can give: then one rank
     * may read for others (dcp_load_options::reading). */
    bool far;
} dcp_storage_traits;

/** How a directory is to be opened: flags. */
typedef enum dcp_storage_open {
    DCP_OPEN_CREATE = 1,  /**< it is made, and those above it, if it is not there */
    DCP_OPEN_DURABLE = 2, /**< what is made is to survive a power cut */
    DCP_OPEN_NO_LINK = 4  /**< the id was not chosen by the caller of the library: a symbolic link
                             is refused */
} dcp_storage_open;

/** How a file is to be opened or created. */
typedef struct dcp_storage_access {
    size_t size_of;           /**< sizeof(dcp_storage_access), set by the library */
    uint32_t io;              /**< flags of #dcp_io; a storage may know some or none */
    dcp_io_priority priority; /**< of the transfers */
    uint32_t threads;         /**< that a queue may start, at most; 0: as many as are good */
    /** Reading: the name was chosen by the caller of the library, not found in a checkpoint. Of
     * other names no symbolic link is followed. */
    bool trusted;
    /** Creating: what is sealed is to survive a power cut. */
    bool durable;
    /** Creating: bytes that will be written, at most, but for a footer of the shard file, which
     * comes on top (8 bytes for each 4 KiB, and some more). */
    uint64_t size;
    /** Creating: it may be far less, so that no space is to be taken beforehand. */
    bool estimated;
    /** Creating: a small file, of exactly that size, which may replace one of its name. That one
     * stays as it is until seal(), which says whether it goes. Never for a storage that has
     * prepare(). */
    bool published;
    /** Creating, and of a queue for what is created: what becomes of the file's pages in the page
     * cache. It is decided already: #DCP_PAGE_CACHE_AUTO does not come. A storage without page
     * cache need not look at it. */
    dcp_page_cache page_cache;
} dcp_storage_access;

/** An open file. Filled in by the storage, which may find it again by `handle`. */
typedef struct dcp_storage_file {
    void *handle;
    uint64_t size; /**< when opened for reading */
    /**
     * Transfers whose memory, size and offset are multiples of it take the best way; others work as
     * well. Transfers of such files come from and go to memory in large pages. 0: alignment makes
     * no difference. A power of two.
     */
    size_t alignment;
} dcp_storage_file;

/** A transfer on its way. The bytes and the struct stay where they are until it is finished. */
typedef struct dcp_storage_transfer {
    dcp_storage_file *file;
    void *bytes; /**< read into, or written from */
    size_t size;
    uint64_t offset;
    bool write;
    void *own; /**< the storage's own, to find again what belongs to the transfer */
} dcp_storage_transfer;

/** When a file must not appear. */
typedef enum dcp_storage_condition {
    DCP_PUBLISH_ALWAYS = 0,     /**< it takes the place of the one that has its name */
    DCP_PUBLISH_IF_ABSENT = 10, /**< DCP_ERR_EXISTS if there is a file of that name */
    DCP_PUBLISH_OVER = 20       /**< it takes the place of the file of an identity and of no other
                                   (If-Match): if another one, or none, has the name by now, or if
                                   others are just replacing it, DCP_ERR_BUSY. Whatever happens at
                                   the same time, each file is replaced at most once */
} dcp_storage_condition;

/** Bytes of an identity, the NUL at its end among them. */
#define DCP_STORAGE_IDENTITY 96

/** Is given each name of a listing; a failure ends it and is its result. */
typedef dcp_status (*dcp_storage_visitor)(void *context, const char *name);

/** The table. `context` is passed to every function. It is read when a call of the library begins;
 * what it points to stays until the call or the asynchronous save has ended, the checkpoint that it
 * has opened is closed, and that one's mappings are gone. */
typedef struct dcp_storage {
    size_t size_of; /**< sizeof(dcp_storage), so that the struct can grow */
    void *context;

    /** Whether this storage takes an id, such as "s3://bucket/step_1000". Optional: it takes every
     * id. What it does not take goes to the file system, unless it has a scheme ("name://"). */
    bool (*takes)(void *context, const char *id);

    /**
     * Opens a directory. One that is not there is DCP_ERR_NOT_FOUND, unless it is to be created; an
     * id that names a file is DCP_ERR_KIND. A storage without directories opens any id, as one that
     * is empty at worst. What is opened stays the same directory, whatever the id means later, if
     * the storage can do that: files do. A directory is closed after what is open in it: files,
     * publications, queues. Optional, together with close(): then every id is open, and the
     * functions below are passed the id itself for a directory, a `char *`, without slashes at its
     * end.
     * @param flags of #dcp_storage_open.
     * @param directory the storage's own; passed to the functions below.
     * @param created whether this call has made the directory.
     */
    dcp_status (*open)(void *context, const char *id, uint32_t flags, void **directory,
                       bool *created);
    void (*close)(void *context, void *directory);
    /**
     * Removes an open directory if it is empty, and still what its id means; else it stays, and
     * that is DCP_OK. Called when a save that has made the directory fails (without open(), when
     * any does), and when a checkpoint has been removed. Others may open the directory at any time,
     * and be about to write into it: then what they do in it either is DCP_ERR_NOT_FOUND, so that
     * they make it anew, or comes first, and it stays. Optional: directories stay.
     */
    dcp_status (*remove_directory)(void *context, void *directory);
    /** Optional: as all zero. @param traits all zero but size_of. */
    void (*describe)(void *context, void *directory, dcp_storage_traits *traits);
    /** Bytes that may still be written; UINT64_MAX: not known. Optional: not known. */
    dcp_status (*free_space)(void *context, void *directory, uint64_t *bytes);

    /** Gives each name in the directory, in any order; of a name with slashes the part up to the
     * first one. A name may come several times. Files that are not sealed may be among them or
     * not. The visitor calls no function of the table. */
    dcp_status (*list)(void *context, void *directory, dcp_storage_visitor visitor,
                       void *visitor_context);
    /** Removes a file. */
    dcp_status (*remove)(void *context, void *directory, const char *name);

    /** Opens a sealed or published file for reading; see dcp_storage_access. */
    dcp_status (*open_file)(void *context, void *directory, const char *name,
                            const dcp_storage_access *access, dcp_storage_file *file);
    /** Reads all of the bytes, which lie inside of the file; by any thread. */
    dcp_status (*read)(void *context, dcp_storage_file *file, void *bytes, size_t size,
                       uint64_t offset);
    void (*close_file)(void *context, dcp_storage_file *file);

    /** Begins a file. One of that name that is there already is DCP_ERR_EXISTS, here or when it is
     * sealed, unless it is published (dcp_storage_access::published). */
    dcp_status (*create)(void *context, void *directory, const char *name,
                         const dcp_storage_access *access, dcp_storage_file *file);
    /** Writes a part; by any thread, parts in any order, none of them twice. */
    dcp_status (*write)(void *context, dcp_storage_file *file, const void *bytes, size_t size,
                        uint64_t offset);
    /**
     * When all parts are written: the file is whole, of @p size bytes, appears at once, and, if
     * access said durable, its content is. Closes it, whatever is returned; should it have appeared
     * in spite of a failure, the library finds that out. What sealing a published file takes,
     * memory above all, is better had by create(): others have written by then, and wait.
     * @param condition whether a file of that name may be replaced: never but by one that is
     * published. #DCP_PUBLISH_OVER only if the storage has identify().
     * @param identity of the file to be replaced over, as identify() has told it; else NULL.
     */
    dcp_status (*seal)(void *context, dcp_storage_file *file, uint64_t size,
                       dcp_storage_condition condition, const char *identity);
    /** In the place of seal: the file goes. Closes it. Optional: close_file() does. */
    void (*abandon)(void *context, dcp_storage_file *file);
    /** Makes the names of files that were sealed, published or removed durable. Optional: they
     * are. */
    dcp_status (*sync)(void *context, void *directory);

    /* ---- optional: many transfers under way without a thread for each ---- */

    /** A queue, for one thread, of at most @p depth transfers at a time. What @p access demands and
     * cannot be had is DCP_ERR_UNSUPPORTED. Limits of memory count 1 MiB for a queue. Optional: a
     * few threads of the library's call read() and write(). @param directory where it is needed
     * first; files of other directories of the storage may go through it as well, those of a
     * union's members. */
    dcp_status (*queue_open)(void *context, void *directory, unsigned depth,
                             const dcp_storage_access *access, void **queue);
    /** Begins a transfer. What fails is said by queue_finish(). */
    void (*queue_start)(void *context, void *queue, dcp_storage_transfer *transfer);
    /** Waits until all bytes of a transfer have been moved, and says how that ended. */
    dcp_status (*queue_finish)(void *context, void *queue, dcp_storage_transfer *transfer);
    /** Waits for what is under way, whatever becomes of it; transfers may never have been finished.
     */
    void (*queue_close)(void *context, void *queue);

    /* ---- optional: what makes reading faster ---- */

    /** Whether a range is in fast memory, so that reading it at once is best. Optional: all is. */
    bool (*is_cached)(void *context, dcp_storage_file *file, uint64_t offset, size_t size);
    /** A range will be read soon. Optional. */
    void (*expect)(void *context, dcp_storage_file *file, uint64_t offset, size_t size);
    /** Gives a range in memory, without a copy, until unmap(); the file may be closed before.
     * Optional: dcp_checkpoint_map_chunk() is DCP_ERR_UNSUPPORTED. @param mapping the storage's
     * own. */
    dcp_status (*map)(void *context, dcp_storage_file *file, uint64_t offset, size_t size,
                      const void **bytes, void **mapping);
    void (*unmap)(void *context, void *mapping, const void *bytes, size_t size);
    /** By which ways transfers went: #DCP_IO_DIRECT if those of the file went around the page
     * cache, #DCP_IO_RING if those of the queue went by io_uring. For dcp_figures. Either may be
     * NULL. Optional: by none. */
    uint32_t (*ways)(void *context, dcp_storage_file *file, void *queue);

    /** Writes an id as it means the same wherever the process goes from now on: of a relative path
     * the absolute one. What is opened later than in the call that an id was given to is opened by
     * that. Optional: ids mean the same everywhere. @param text for @p size bytes, enough for a
     * path of PATH_MAX bytes in front of the id. */
    dcp_status (*absolute)(void *context, const char *id, char *text, size_t size);

    /** Tells which file has a name: text that differs between those that had the name one after the
     * other (an ETag, a digest of the content). DCP_ERR_NOT_FOUND: none has. Optional: the library
     * digests the content, compares and then seals or publishes, and what happens in between goes
     * unnoticed: then one directory is safe against several saves at once only as far as their
     * marks are seen (dcp/save.h). */
    dcp_status (*identify)(void *context, void *directory, const char *name,
                           char identity[DCP_STORAGE_IDENTITY]);

    /* ---- optional, together: publishing otherwise than by create(), write() and seal(), for a
     * storage whose create() takes the name at once, as that of files ---- */

    /** Writes a small file that does not appear yet. @param access `size` and `durable` are set.
     * @param publication the storage's own, for publish() or retract(), one of which follows. */
    dcp_status (*prepare)(void *context, void *directory, const char *name, const void *bytes,
                          size_t size, const dcp_storage_access *access, void **publication);
    /** Makes it appear at once, in the place of one that was there. Takes no memory. Ends the
     * publication, whatever is returned. What was prepared may have been removed by somebody else
     * since: DCP_ERR_BUSY. @param condition not #DCP_PUBLISH_OVER. @param visible whether it has
     * appeared, also when a failure followed. */
    dcp_status (*publish)(void *context, void *publication, dcp_storage_condition condition,
                          bool *visible);
    void (*retract)(void *context, void *publication);
    /** As publish(), under #DCP_PUBLISH_OVER. May take memory. Together with identify(). */
    dcp_status (*publish_over)(void *context, void *publication, const char *identity,
                               bool *visible);
} dcp_storage;

/** The function that a module exports: a shared object that brings a storage to programs which were
 * built without it, such as `dcp --storage MODULE,ARGUMENT ls ID`. */
#define DCP_STORAGE_MODULE "dcp_storage_module"

/**
 * What that function is.
 * @param argument what the user has written behind the module's name, "" if nothing.
 * @return the table, which stays until the process ends; NULL: there can be none, and
 * dcp_error_set() says why.
 */
typedef const dcp_storage *(*dcp_storage_module_function)(const char *argument);

/** @return the table of the file system. Static. */
DCP_API const dcp_storage *dcp_storage_files(void);

/**
 * Gives each name in a directory once, sorted by its bytes; of a name with slashes the part up to
 * the first one, so that subdirectories are among them. On a storage without directories, one that
 * was never written to is empty instead of DCP_ERR_NOT_FOUND.
 * @param storage NULL: the file system, as for ids that the storage does not take.
 * @param visitor its failure ends the listing and is the result. It may call the library.
 * Errors: DCP_ERR_NOT_FOUND, DCP_ERR_KIND for an id that names a file.
 */
DCP_API dcp_status dcp_storage_list(const dcp_storage *storage, const char *id,
                                    dcp_storage_visitor visitor, void *context);

/**
 * Removes one file of a directory, durably. Whether it belongs to a checkpoint is not looked at;
 * dcp_checkpoint_remove() removes those.
 * @param storage as for dcp_storage_list().
 * @param name relative, without a way out of the directory.
 * Errors: DCP_ERR_NOT_FOUND.
 */
DCP_API dcp_status dcp_storage_remove(const dcp_storage *storage, const char *id, const char *name);

/**
 * Makes a storage that keeps checkpoints in memory, for tests, and for states that go from one part
 * of a program to another. Takes every id; ids that are alike after slashes at their ends are cut
 * off are one directory. Everything is gone when it is freed.
 * @param storage owned by the caller.
 */
DCP_API dcp_status dcp_storage_memory_new(dcp_storage **storage);
/** After all that is open in it has been closed. NULL is allowed. */
DCP_API void dcp_storage_memory_free(dcp_storage *storage);

#ifdef __cplusplus
}
#endif

#endif
