/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file storage_reader.h
 * @brief Taking part in the reading of a load, step by step.
 *
 * A storage reader is a table of hooks (PyTorch's StorageReader), as a planner is
 * (dcp/load_planner.h). A hook that is NULL does what the library does by itself: it reads the path
 * in the load's storage. The sequence is PyTorch's:
 *
 *  1. `reset` on every rank
 *  2. `read_metadata` on the coordinator, which passes on what it read: unlike PyTorch, where every
 *     rank reads it
 *  3. `set_up_storage_reader` on every rank
 *  4. `prepare_local_plan` on every rank, after the planner's create_local_plan
 *  5. `prepare_global_plan` on the coordinator, after the planner's create_global_plan
 *  6. `read_data` on every rank
 *
 * A storage that can give bytes by offset needs no hooks: it is a dcp_storage (dcp/storage.h), and
 * everything works over it as over files. A reader is for what can only give whole streams, or has
 * a plan of its own for reading: with `read_metadata` and `read_data` it needs no directory, and
 * the checkpoint id is what it takes for one.
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
 * DCP_OK or a failure, which every rank gets. The struct is read when the load begins and may
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
DCP_API dcp_status dcp_load_default_read_data(dcp_loading *loading);

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
