/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file storage_writer.h
 * @brief Taking part in the writing of a save, or putting it into a custom storage.
 *
 * A storage writer is a table of hooks (PyTorch's StorageWriter), as a planner is
 * (dcp/save_planner.h). A hook that is NULL does what the library does by itself: shard files in
 * the directory, committed by the rename of `.metadata`. The sequence is PyTorch's:
 *
 *  1. `validate_checkpoint_id`, `reset`, `storage_meta`, `set_up_storage_writer` on every rank
 *  2. `prepare_local_plan` on every rank, after the planner's create_local_plan
 *  3. `prepare_global_plan` on the coordinator, after the planner's create_global_plan
 *  4. `write_data` on every rank
 *  5. `finish` on the coordinator, when every rank has written
 *
 * A writer with `write_data` of its own and the default `finish` puts files of its own into the
 * directory, beside the library's `.metadata`. One with `set_up_storage_writer` and `finish` of its
 * own needs no directory at all, and its checkpoint id is what it takes for one.
 */
#ifndef DCP_STORAGE_WRITER_H
#define DCP_STORAGE_WRITER_H

#include "checkpoint.h"
#include "save_planner.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Where an item of some rank was written (PyTorch's WriteResult). The struct will not grow, as it
 * comes in arrays. */
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

    /** Whether this storage can do with an id, which is the path that was given to the save; "" if
     * none was. */
    bool (*validate_checkpoint_id)(void *context, const char *checkpoint_id);
    /** A save begins, under this id. */
    dcp_status (*reset)(void *context, const char *checkpoint_id);
    /** What the storage says of the save: for the planner, and for the metadata, which takes the
     * coordinator's; but for `save_id` where the library's own files are written, as these carry an
     * id that the library has chosen. Texts and the list are borrowed until the save has ended. */
    dcp_status (*storage_meta)(void *context, dcp_storage_meta *meta);
    dcp_status (*set_up_storage_writer)(void *context, dcp_saving *saving, bool is_coordinator);

    /** May change the plan, and put into its storage data what prepare_global_plan is to have. */
    dcp_status (*prepare_local_plan)(void *context, dcp_saving *saving, dcp_save_plan *plan);
    /** May change the plans as the planner's create_global_plan may, and put into their storage
     * data what write_data is to have. */
    dcp_status (*prepare_global_plan)(void *context, dcp_saving *saving,
                                      dcp_save_plan *const *plans, int plan_count);

    /**
     * Writes each item of @p plan, got by dcp_saving_resolve() or dcp_saving_stream(), and says
     * where by dcp_saving_set_location(), once for each.
     */
    dcp_status (*write_data)(void *context, dcp_saving *saving, const dcp_save_plan *plan);

    /**
     * Makes the checkpoint visible. @p metadata says what is in it and where, and
     * dcp_checkpoint_encode() makes the bytes of a `.metadata` of it; @p results are those of all
     * ranks, rank by rank. Both are valid during the call.
     */
    dcp_status (*finish)(void *context, dcp_saving *saving, const dcp_checkpoint *metadata,
                         const dcp_write_result *results, size_t result_count);

    /** Every rank on which set_up_storage_writer has come to its turn: the save has failed, and
     * what was written can go. */
    void (*abandon)(void *context, dcp_saving *saving);
} dcp_storage_writer;

/* ---- what the library does where there is no hook ---- */

/** Has the directory made, and an earlier checkpoint refused or replaced, as the options say, when
 * planning has succeeded. */
DCP_API dcp_status dcp_save_default_set_up_storage_writer(dcp_saving *saving);
/** Writes this rank's shard files. */
DCP_API dcp_status dcp_save_default_write_data(dcp_saving *saving);
/** Writes metadata.json, then `.metadata`, by rename. */
DCP_API dcp_status dcp_save_default_finish(dcp_saving *saving);

/* ---- in write_data ---- */

/** The data of item @p index of the plan, by the planner. The caller calls `release` of @p data, if
 * it is not NULL, when it has been used. */
DCP_API dcp_status dcp_saving_resolve(dcp_saving *saving, size_t index, dcp_write_data *data);

/** Gives @p sink the stream of item @p index as the library would store it, which PyTorch reads;
 * elements are gathered, converted and brought from their device in pieces of at most 1 MiB. May be
 * called by several threads at a time. */
DCP_API dcp_status dcp_saving_stream(dcp_saving *saving, size_t index, dcp_sink sink,
                                     void *context);

/** Says where item @p index has been written. The location is copied. Errors: DCP_ERR_ARGUMENT for
 * a path that is none, or an item of which it was said before. May be called by several threads at
 * a time, for different items. */
DCP_API dcp_status dcp_saving_set_location(dcp_saving *saving, size_t index,
                                           const dcp_storage_location *location);

#ifdef __cplusplus
}
#endif

#endif
