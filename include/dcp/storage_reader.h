/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file storage_reader.h
 * @brief Hooks into the reading of a load.
 *
 * A storage reader is a table of hooks (PyTorch's StorageReader), as a planner is
 * (dcp/load_planner.h). If a hook is NULL, the library's default is used: it reads the path in the
 * load's storage. The sequence is PyTorch's:
 *
 *  1. `reset` on every rank
 *  2. `read_metadata` on the coordinator, which sends it to the other ranks (in PyTorch every rank
 *     reads it)
 *  3. `set_up_storage_reader` on every rank
 *  4. `prepare_local_plan` on every rank, after the planner's create_local_plan
 *  5. `prepare_global_plan` on the coordinator, after the planner's create_global_plan
 *  6. `read_data` on every rank
 *
 * A storage that can read bytes at an offset needs no hooks: implement it as a dcp_storage
 * (dcp/storage.h), which supports everything that files do. Use a reader for storage that can only
 * read whole streams, or to control how items are read. With `read_metadata` and `read_data` it
 * needs no directory; it defines what a checkpoint id is.
 *
 * A reader is set by dcp_load_options::storage_reader, or found by the id among
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
 * DCP_OK or a failure, which every rank gets. The struct is read when the load begins and may
 * be freed when it has ended.
 */
typedef struct dcp_storage_reader {
    size_t size_of; /**< sizeof(dcp_storage_reader), so that the struct can grow */
    void *context;

    /** Whether this storage handles an id. Called for dcp_load_options::storage_readers in order.
     * NULL: it handles none. */
    bool (*validate_checkpoint_id)(void *context, const char *checkpoint_id);
    /** A load of this id begins. The id is the path that was passed to the load; "" if there was
     * none. */
    dcp_status (*reset)(void *context, const char *checkpoint_id);
    /** Coordinator: gives the bytes of the `.metadata` file. @param bytes borrowed until the next
     * hook is called. */
    dcp_status (*read_metadata)(void *context, const void **bytes, size_t *size);
    /** @param metadata the stored metadata, without data; valid until the load has ended. */
    dcp_status (*set_up_storage_reader)(void *context, dcp_loading *loading,
                                        const dcp_checkpoint *metadata, bool is_coordinator);

    /** May change the plan, and its storage data for prepare_global_plan. */
    dcp_status (*prepare_local_plan)(void *context, dcp_loading *loading, dcp_load_plan *plan);
    /** May change the plans, and their storage data for read_data. */
    dcp_status (*prepare_global_plan)(void *context, dcp_loading *loading,
                                      dcp_load_plan *const *plans, int plan_count);

    /**
     * Reads each item of @p plan and delivers it exactly once: as a stored stream by
     * dcp_loading_stream(), as an object by dcp_loading_load_bytes(), or as elements that the hook
     * writes between dcp_loading_resolve_tensor() and dcp_loading_commit_tensor(). All items must
     * be delivered when it returns.
     */
    dcp_status (*read_data)(void *context, dcp_loading *loading, const dcp_load_plan *plan);
} dcp_storage_reader;

/** Finds the stream of a stored chunk or object. Errors: DCP_ERR_NOT_FOUND. @param location its
 * `path` is borrowed from the checkpoint. */
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

/** Gets the storage's description of the save (Metadata.storage_meta): its strings and paths.
 * Unions and forms without a description have none. @param meta its strings are borrowed from the
 * checkpoint. */
DCP_API dcp_status dcp_checkpoint_storage_meta_sized(const dcp_checkpoint *checkpoint,
                                                     dcp_storage_meta *meta, size_t meta_size);

static inline dcp_status dcp_checkpoint_storage_meta(const dcp_checkpoint *checkpoint,
                                                     dcp_storage_meta *meta)
{
    return dcp_checkpoint_storage_meta_sized(checkpoint, meta, sizeof *meta);
}

/* ---- in read_data; may be called by several threads at a time, for different items ---- */

/** The default of the library: reads the items that have not been delivered yet from the files of
 * the path. */
DCP_API dcp_status dcp_load_default_read_data(dcp_loading *loading);

/** Delivers item @p index as its whole stored stream, decompressed or not. The library checks the
 * stream and passes the item's part to the planner. */
DCP_API dcp_status dcp_loading_stream(dcp_loading *loading, size_t index, const void *bytes,
                                      size_t size);

/** Delivers an object's stream to the planner. */
DCP_API dcp_status dcp_loading_load_bytes(dcp_loading *loading, size_t index, const void *bytes,
                                          size_t size);
/** Gets the planner's memory for an object's stream, valid until the stream is delivered. */
DCP_API dcp_status dcp_loading_resolve_bytes(dcp_loading *loading, size_t index, size_t size,
                                             void **bytes);

/** Gets the destination of a tensor item from the planner, with memory. Write the elements there,
 * converted to its dtype, then call dcp_loading_commit_tensor(). */
DCP_API dcp_status dcp_loading_resolve_tensor_sized(dcp_loading *loading, size_t index,
                                                    dcp_tensor *tensor, size_t tensor_size);

static inline dcp_status dcp_loading_resolve_tensor(dcp_loading *loading, size_t index,
                                                    dcp_tensor *tensor)
{
    return dcp_loading_resolve_tensor_sized(loading, index, tensor, sizeof *tensor);
}

/** Reports that the elements are in @p tensor, which came from dcp_loading_resolve_tensor(). */
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
