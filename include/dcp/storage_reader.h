/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file storage_reader.h
 * @brief Taking part in the reading of a load, or loading from a storage of one's own.
 *
 * A storage reader is a table of hooks (PyTorch's StorageReader), as a planner is
 * (dcp/load_planner.h). A hook that is NULL does what the library does by itself: the path is a
 * directory or file. The sequence is PyTorch's:
 *
 *  1. `reset` on every rank
 *  2. `read_metadata` on the coordinator, which passes on what it read: unlike PyTorch, where every
 *     rank reads it
 *  3. `set_up_storage_reader` on every rank
 *  4. `prepare_local_plan` on every rank, after the planner's create_local_plan
 *  5. `prepare_global_plan` on the coordinator, after the planner's create_global_plan
 *  6. `read_data` on every rank
 *
 * There are two ways to load from elsewhere than from files. A storage whose bytes can be asked for
 * by offset (an object store, an archive, memory) has `stored_size` and `read_range`, and all else
 * is as with files: .metadata is read, parts of chunks without the rest, neighbours at once, by
 * several threads, what several ranks want by one of them; and it is verified and decompressed. A
 * storage that can only give whole streams, or has a plan of its own for reading, has
 * `read_metadata` and `read_data`. Neither needs a directory, and the checkpoint id is what they
 * take for one.
 *
 * A reader is asked for explicitly by dcp_load_options::storage_reader, or found by the id among
 * dcp_load_options::storage_readers.
 */
#ifndef DCP_STORAGE_READER_H
#define DCP_STORAGE_READER_H

#include "load_planner.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The hooks of a storage reader. `context` is passed to each of them. Each may be NULL, and returns
 * DCP_OK or a failure, of which every rank is told. The struct is read when the load begins and may
 * be freed when it has ended.
 */
typedef struct dcp_storage_reader {
    size_t size_of; /**< sizeof(dcp_storage_reader), so that the struct can grow */
    void *context;

    /** Whether this storage can do with an id: asked of dcp_load_options::storage_readers in their
     * order. NULL: with none. */
    bool (*validate_checkpoint_id)(void *context, const char *checkpoint_id);
    /** A load begins, of this id, which is the path that was given to the load; "" if none was. */
    dcp_status (*reset)(void *context, const char *checkpoint_id);
    /** Coordinator: the bytes of a `.metadata`, as a save's metadata encode to. @param bytes
     * borrowed until the next hook is called. */
    dcp_status (*read_metadata)(void *context, const void **bytes, size_t *size);
    /** @param metadata what is stored, for looking only, until the load has ended. */
    dcp_status (*set_up_storage_reader)(void *context, dcp_loading *loading,
                                        const dcp_checkpoint *metadata, bool is_coordinator);

    /** May change the plan, and put into its storage data what prepare_global_plan is to have. */
    dcp_status (*prepare_local_plan)(void *context, dcp_loading *loading, dcp_load_plan *plan);
    /** May change the plans, and put into their storage data what read_data is to have. */
    dcp_status (*prepare_global_plan)(void *context, dcp_loading *loading,
                                      dcp_load_plan *const *plans, int plan_count);

    /**
     * Reads each item of @p plan, once, and hands it over: the stored stream by
     * dcp_loading_stream(), or what is in it by dcp_loading_load_bytes() and, between
     * dcp_loading_resolve_tensor() and dcp_loading_commit_tensor(), by itself. When it returns all
     * of them have come.
     */
    dcp_status (*read_data)(void *context, dcp_loading *loading, const dcp_load_plan *plan);

    /**
     * How long a file of the checkpoint is. Called before any of it is read, by several threads at
     * a time. Goes with read_range: a reader has both or neither.
     * @param location the file's name in the checkpoint, as dcp_storage_location::path:
     * ".metadata",
     * "__0_0.distcp", or "pp0/.metadata" of a member of a union. It may be what is only the
     * beginning of such names, where DCP_ERR_NOT_FOUND is the answer.
     * Errors: DCP_ERR_NOT_FOUND: there is no such file. Others are the load's.
     */
    dcp_status (*stored_size)(void *context, const char *location, uint64_t *size);

    /**
     * Reads @p size bytes of a file from @p offset on, into @p bytes; inside of the size that was
     * told, never 0 bytes and at most some megabytes. Called by up to
     * dcp_load_options::thread_count threads at a time. With this hook dcp_default_read_data()
     * reads from here, and so does a load whose reader has no `read_data`; where files would be
     * looked for, such as for `.metadata` without read_metadata, the storage is asked.
     * dcp_figures::bytes_read counts what was asked for. The memory that the hook takes is not part
     * of dcp_load_options::memory_limit.
     * @param done how many bytes it has read, from the first one on: fewer than @p size, and the
     * rest is asked for; none, and the file is shorter than was told, which is an error.
     */
    dcp_status (*read_range)(void *context, const char *location, uint64_t offset, size_t size,
                             void *bytes, size_t *done);
} dcp_storage_reader;

/** Where the stream of a stored chunk or object lies. Errors: DCP_ERR_NOT_FOUND. @param location
 * what it points to is borrowed from the checkpoint. */
DCP_API dcp_status dcp_checkpoint_locate_sized(const dcp_checkpoint *checkpoint,
                                               const dcp_item_index *stored,
                                               dcp_storage_location *location,
                                               size_t location_size);

static inline dcp_status dcp_checkpoint_locate(const dcp_checkpoint *checkpoint,
                                               const dcp_item_index *stored,
                                               dcp_storage_location *location)
{
    return dcp_checkpoint_locate_sized(checkpoint, stored, location, sizeof *location);
}

/** What the storage said of the save that this is (Metadata.storage_meta): of what is there, texts
 * and paths; nothing of a union, or of forms that have none. @param meta what it points to is
 * borrowed from the checkpoint. */
DCP_API dcp_status dcp_checkpoint_storage_meta_sized(const dcp_checkpoint *checkpoint,
                                                     dcp_storage_meta *meta, size_t meta_size);

static inline dcp_status dcp_checkpoint_storage_meta(const dcp_checkpoint *checkpoint,
                                                     dcp_storage_meta *meta)
{
    return dcp_checkpoint_storage_meta_sized(checkpoint, meta, sizeof *meta);
}

/* ---- in read_data; may be called by several threads at a time, for different items ---- */

/** What the library does where there is no hook: reads the items that have not been handed over yet
 * from the files of the path. */
DCP_API dcp_status dcp_default_read_data(dcp_loading *loading);

/** Hands over item @p index as the stream that the checkpoint's location names, whole, decompressed
 * or not: checks it, and gives what the item is about to the planner. */
DCP_API dcp_status dcp_loading_stream(dcp_loading *loading, size_t index, const void *bytes,
                                      size_t size);

/** Hands over an object's stream to the planner. */
DCP_API dcp_status dcp_loading_load_bytes(dcp_loading *loading, size_t index, const void *bytes,
                                          size_t size);
/** The planner's memory for an object's stream, until it is handed over. */
DCP_API dcp_status dcp_loading_resolve_bytes(dcp_loading *loading, size_t index, size_t size,
                                             void **bytes);

/** Where the elements of a tensor's item go, by the planner, with memory. They are to be brought
 * there, converted to its dtype; then dcp_loading_commit_tensor() is called. */
DCP_API dcp_status dcp_loading_resolve_tensor_sized(dcp_loading *loading, size_t index,
                                                    dcp_tensor *tensor, size_t tensor_size);

static inline dcp_status dcp_loading_resolve_tensor(dcp_loading *loading, size_t index,
                                                    dcp_tensor *tensor)
{
    return dcp_loading_resolve_tensor_sized(loading, index, tensor, sizeof *tensor);
}

/** Says that the elements are in @p tensor, which is what dcp_loading_resolve_tensor() gave. */
DCP_API dcp_status dcp_loading_commit_tensor_sized(dcp_loading *loading, size_t index,
                                                   const dcp_tensor *tensor, size_t tensor_size);

static inline dcp_status dcp_loading_commit_tensor(dcp_loading *loading, size_t index,
                                                   const dcp_tensor *tensor)
{
    return dcp_loading_commit_tensor_sized(loading, index, tensor, sizeof *tensor);
}

#ifdef __cplusplus
}
#endif

#endif
