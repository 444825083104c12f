/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file plan_item.h
 * @brief Types that save plans and load plans share: which item is meant, and where it is stored.
 *
 * Planners, storage writers and storage readers use these types. A checkpoint's metadata is a
 * #dcp_checkpoint, even before it is stored: dcp_checkpoint_count(), dcp_checkpoint_entry(),
 * dcp_checkpoint_find() and dcp_checkpoint_chunk() describe its contents,
 * dcp_checkpoint_planner_data() returns the data of planners.
 */
#ifndef DCP_PLAN_ITEM_H
#define DCP_PLAN_ITEM_H

#include "state.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Identifies a chunk or object: a name, and for tensors the chunk's first element (PyTorch's
 * MetadataIndex, without its hint). The struct will not grow, because others contain it. */
typedef struct dcp_item_index {
    const char *name;       /**< flattened name (FQN) */
    const int64_t *offsets; /**< tensors: `ndim` values; NULL for objects */
    int32_t ndim;           /**< tensors */
} dcp_item_index;

/** One part of a stored chunk that goes into a chunk of the state, or one object (PyTorch's
 * ReadItem). Items from a plan borrow from it until dcp_load() returns. */
typedef struct dcp_read_item {
    dcp_item_index destination; /**< in the state */
    dcp_item_index stored;      /**< in the checkpoint */
    bool is_tensor;             /**< else an object */

    /** Tensors: offsets of the part in the destination's chunk and in the stored chunk, and its
     * sizes; `ndim` values each. Both chunks have the same `ndim`. */
    const int64_t *destination_offsets;
    const int64_t *stored_offsets;
    const int64_t *lengths;
} dcp_read_item;

/** Where the stream of a chunk or object lies (PyTorch's _StorageInfo). The struct will
 * not grow, because others contain it. */
typedef struct dcp_storage_location {
    /** File relative to the checkpoint's directory, or a key of a custom storage: UTF-8, components
     * separated by single slashes, none of them "." or "..". */
    const char *path;
    uint64_t offset; /**< first byte of the stream in the file */
    uint64_t length; /**< bytes of the stream as stored */
} dcp_storage_location;

/** A storage's own description of a save (PyTorch's StorageMeta). Texts are UTF-8; NULL: none. */
typedef struct dcp_storage_meta {
    const char *checkpoint_id;
    const char *save_id;
    const char *load_id;
    const char *const *modules;
    size_t module_count;
} dcp_storage_meta;

/* ---- plans to load ---- */

/** What one rank will read: a list of items, and two dicts that are sent with it. */
typedef struct dcp_load_plan dcp_load_plan;

/** @return number of items. */
DCP_API size_t dcp_load_plan_count(const dcp_load_plan *plan);

/** Describes item @p index. Errors: DCP_ERR_ARGUMENT. */
DCP_API dcp_status dcp_load_plan_item_sized(const dcp_load_plan *plan, size_t index,
                                            dcp_read_item *item, size_t item_size);

static inline dcp_status dcp_load_plan_item(const dcp_load_plan *plan, size_t index,
                                            dcp_read_item *item)
{
    return dcp_load_plan_item_sized(plan, index, item, sizeof *item);
}

/** Replaces item @p index. What @p item points to is copied. Errors: DCP_ERR_ARGUMENT. */
DCP_API dcp_status dcp_load_plan_set_item_sized(dcp_load_plan *plan, size_t index,
                                                const dcp_read_item *item, size_t item_size);

static inline dcp_status dcp_load_plan_set_item(dcp_load_plan *plan, size_t index,
                                                const dcp_read_item *item)
{
    return dcp_load_plan_set_item_sized(plan, index, item, sizeof *item);
}

/** Appends an item, as dcp_load_plan_set_item(). */
DCP_API dcp_status dcp_load_plan_add_sized(dcp_load_plan *plan, const dcp_read_item *item,
                                           size_t item_size);

static inline dcp_status dcp_load_plan_add(dcp_load_plan *plan, const dcp_read_item *item)
{
    return dcp_load_plan_add_sized(plan, item, sizeof *item);
}

/** Removes all items. Items that were read from the plan stay valid. */
DCP_API void dcp_load_plan_clear(dcp_load_plan *plan);

/** @return a dict for the planner's data, which is sent with the plan from a rank to the
 * coordinator and back. It may hold values that can be saved, except tensors. NULL if there is no
 * memory. */
DCP_API dcp_state *dcp_load_plan_planner_data(dcp_load_plan *plan);
/** The same for the storage reader. */
DCP_API dcp_state *dcp_load_plan_storage_data(dcp_load_plan *plan);

#ifdef __cplusplus
}
#endif

#endif
