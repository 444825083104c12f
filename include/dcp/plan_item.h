/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file plan_item.h
 * @brief What plans to save and plans to load are made of alike: which thing is meant, and where it
 * lies.
 *
 * Whoever plugs a planner, a storage writer or a storage reader into a save or load meets these. A
 * checkpoint's metadata is a #dcp_checkpoint, also where it is not stored yet: dcp_entry_count(),
 * dcp_entry_at(), dcp_entry_find() and dcp_entry_chunk() say what is in it,
 * dcp_checkpoint_planner_data() what planners put there.
 */
#ifndef DCP_PLAN_ITEM_H
#define DCP_PLAN_ITEM_H

#include "state.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Which chunk or object is meant: a name, and for tensors the chunk's first element (PyTorch's
 * MetadataIndex, without its hint). */
typedef struct dcp_item_index {
    const char *name;       /**< flattened name (FQN) */
    const int64_t *offsets; /**< tensors: `ndim` values; NULL for objects */
    int32_t ndim;           /**< tensors */
} dcp_item_index;

/** Where the stream of a chunk or object lies (PyTorch's _StorageInfo). */
typedef struct dcp_storage_location {
    /** File relative to the checkpoint's directory, or a key of the storage's own: UTF-8,
     * components separated by single slashes, none of them "." or "..". */
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

#ifdef __cplusplus
}
#endif

#endif
