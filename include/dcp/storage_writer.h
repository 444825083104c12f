/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file storage_writer.h
 * @brief Hooks into the writing of a save.
 *
 * A storage writer is a table of hooks (PyTorch's StorageWriter), as a planner is
 * (dcp/save_planner.h). If a hook is NULL, the library's default is used: it writes shard files to
 * the directory and commits them by renaming `.metadata`. The sequence is PyTorch's:
 *
 *  1. `validate_checkpoint_id`, `reset`, `storage_meta`, `set_up_storage_writer` on every rank
 *  2. `prepare_local_plan` on every rank, after the planner's create_local_plan
 *  3. `prepare_global_plan` on the coordinator, after the planner's create_global_plan
 *  4. `write_data` on every rank
 *  5. `finish` on the coordinator, when every rank has written
 *
 * A writer with `write_data` and the default `finish` writes its files into the directory, beside
 * the library's `.metadata`. A writer with `set_up_storage_writer` and `finish` needs no directory;
 * it defines what a checkpoint id is.
 */
#ifndef DCP_STORAGE_WRITER_H
#define DCP_STORAGE_WRITER_H

#include "checkpoint.h"
#include "save_planner.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Where an item of some rank was written (PyTorch's WriteResult). The struct will not grow,
 * because it is used in arrays. */
typedef struct dcp_write_result {
    int rank;
    dcp_item_index index;
    dcp_storage_location location;
} dcp_write_result;

/**
 * The hooks of a storage writer. `context` is passed to each of them. Each may be NULL, and returns
 * DCP_OK or a failure, which every rank gets. The struct is read when the save begins and may
 * be freed when it has ended.
 */
typedef struct dcp_storage_writer {
    size_t size_of; /**< sizeof(dcp_storage_writer), so that the struct can grow */
    void *context;

    /** Whether this storage handles an id. The id is the path that was passed to the save; "" if
     * there was none. */
    bool (*validate_checkpoint_id)(void *context, const char *checkpoint_id);
    /** A save begins, under this id. */
    dcp_status (*reset)(void *context, const char *checkpoint_id);
    /** The storage's description of the save, for the planner and for the metadata. The metadata
     * takes the coordinator's. If the library writes its own files, `save_id` is ignored, because
     * these files contain an id that the library has chosen. Strings and the list are borrowed
     * until the save has ended. */
    dcp_status (*storage_meta)(void *context, dcp_storage_meta *meta);
    dcp_status (*set_up_storage_writer)(void *context, dcp_saving *saving, bool is_coordinator);

    /** May change the plan, and its storage data for prepare_global_plan. */
    dcp_status (*prepare_local_plan)(void *context, dcp_saving *saving, dcp_save_plan *plan);
    /** May change the plans as the planner's create_global_plan may, and their storage data for
     * write_data. */
    dcp_status (*prepare_global_plan)(void *context, dcp_saving *saving,
                                      dcp_save_plan *const *plans, int plan_count);

    /**
     * Writes each item of @p plan, whose data comes from dcp_saving_resolve() or
     * dcp_saving_stream(), and calls dcp_saving_set_location() once for each.
     */
    dcp_status (*write_data)(void *context, dcp_saving *saving, const dcp_save_plan *plan);

    /**
     * Makes the checkpoint visible. @p metadata describes its contents; dcp_checkpoint_encode()
     * encodes it as a `.metadata` file. @p results are those of all ranks, in rank order. Both are
     * valid during the call.
     */
    dcp_status (*finish)(void *context, dcp_saving *saving, const dcp_checkpoint *metadata,
                         const dcp_write_result *results, size_t result_count);

    /** Every rank on which set_up_storage_writer was called: the save has failed, and written data
     * can be discarded. */
    void (*abandon)(void *context, dcp_saving *saving);
} dcp_storage_writer;

/* ---- what the library does where there is no hook ---- */

/** Creates the directory when planning has succeeded, and refuses or replaces an earlier checkpoint
 * as the options say. */
DCP_API dcp_status dcp_save_default_set_up_storage_writer(dcp_saving *saving);
/** Writes this rank's shard files. */
DCP_API dcp_status dcp_save_default_write_data(dcp_saving *saving);
/** Writes metadata.json, then `.metadata`, by rename. */
DCP_API dcp_status dcp_save_default_finish(dcp_saving *saving);

/* ---- in write_data ---- */

/** Gets the data of item @p index of the plan from the planner. The caller calls `release` of @p
 * data, if it is not NULL, after using it. */
DCP_API dcp_status dcp_saving_resolve(dcp_saving *saving, size_t index, dcp_write_data *data);

/** Passes the stream of item @p index to @p sink, as the library would store it, so that PyTorch
 * can read it. Elements are gathered, converted and copied from their device in pieces of at most 1
 * MiB. May be called by several threads at a time. */
DCP_API dcp_status dcp_saving_stream(dcp_saving *saving, size_t index, dcp_sink sink,
                                     void *context);

/** Sets where item @p index was written. The location is copied. Errors: DCP_ERR_ARGUMENT for an
 * invalid path, or if the location of the item was already set. May be called by several threads at
 * a time, for different items. */
DCP_API dcp_status dcp_saving_set_location(dcp_saving *saving, size_t index,
                                           const dcp_storage_location *location);

#ifdef __cplusplus
}
#endif

#endif
