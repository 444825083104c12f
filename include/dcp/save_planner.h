/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file save_planner.h
 * @brief Hooks into the planning of a save: which chunks and objects are written, by which rank,
 * under which names and in which form.
 *
 * A planner is a table of hooks (PyTorch's SavePlanner). If a hook is NULL, the library's default
 * is used. Hooks can call the defaults, whose names begin with `dcp_save_default_`. The sequence is
 * PyTorch's:
 *
 *  1. `set_up_planner` on every rank
 *  2. `create_local_plan` on every rank
 *  3. `create_global_plan` on the coordinator
 *  4. `finish_plan` on every rank
 *  5. `resolve_data` (`lookup_object`, then `transform_object`) on every rank, for what it writes
 *
 * Nothing is written before step 4 has succeeded on every rank. A hook that fails sets the message
 * with dcp_error_set(); every rank receives it. All ranks must have the same hooks, which is
 * checked.
 *
 * The plans are checked before anything is written: each rank writes only items of its local plan,
 * no two ranks write the same data, and the chunks of a name cover its tensor.
 */
#ifndef DCP_SAVE_PLANNER_H
#define DCP_SAVE_PLANNER_H

#include "plan_item.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A save in progress, as hooks see it; valid until dcp_save() returns. */
typedef struct dcp_saving dcp_saving;

/** What one rank will write: a list of items, and two dicts that are sent with it. */
typedef struct dcp_save_plan dcp_save_plan;

/** One chunk of a tensor, or one object (PyTorch's WriteItem). Items from a plan borrow from it
 * until the hook returns. */
typedef struct dcp_write_item {
    dcp_item_index index;
    /** The path to it in a nested state; joined by dots it is the name. `path_length` 0: the name
     * is the only part. */
    const dcp_path_part *path;
    size_t path_length;
    bool is_tensor; /**< else an object */

    /** Tensors: the dtype to write. Elements in memory of another real dtype are converted. */
    dcp_dtype dtype;
    bool requires_grad;
    const int64_t *global_shape; /**< tensors: `index.ndim` values */
    const int64_t *sizes;        /**< tensors: of the chunk, which begins at `index.offsets` */

    /** Objects: size of the stream in bytes; 0 while the local plan is made. */
    uint64_t object_length;
    /** In a local plan: how dcp_save_default_lookup_object() finds the item even if a hook has
     * renamed it. 0 for an item that a hook has added, which is found by its name. */
    uint64_t source;
} dcp_write_item;

/**
 * The data to write for an item: elements of a tensor in memory, or bytes. All pointers are
 * borrowed until `release` is called, or until the save has ended if it is NULL. The struct will
 * not grow, because hooks keep copies of it.
 */
typedef struct dcp_write_data {
    dcp_dtype dtype;        /**< tensors: of the elements in memory */
    dcp_device device;      /**< tensors: where `data` is */
    const void *data;       /**< tensors: the first element of the item's chunk */
    const int64_t *strides; /**< tensors: of `data`, in elements, one for each dimension; NULL:
                                 row-major without gaps */
    const void *bytes; /**< objects: the stream to store. For PyTorch to read it, it must be a file
                            of torch.save */
    size_t size;       /**< objects: of the stream */
    /** NULL, or called once with `owner` when the data is no longer needed, on any thread. */
    void (*release)(void *owner);
    void *owner;
} dcp_write_data;

/**
 * The hooks of a planner. `context` is passed to each of them. Each may be NULL, and returns DCP_OK
 * or a failure. The struct is read when the save begins and may be freed when it has ended.
 */
typedef struct dcp_save_planner {
    size_t size_of; /**< sizeof(dcp_save_planner), so that the struct can grow */
    void *context;

    /**
     * Every rank: the save begins. The hook calls dcp_save_default_set_up_planner() with the state
     * to save. That may be another state than @p state; it must stay valid until the save has
     * ended, or in dcp_save_async() as long as the caller's state.
     */
    dcp_status (*set_up_planner)(void *context, dcp_saving *saving, dcp_state *state,
                                 const dcp_storage_meta *storage_meta, bool is_coordinator);

    /**
     * Every rank: fills the empty @p plan with the items of this rank. Most hooks call
     * dcp_save_default_create_local_plan() and then change the plan. create_global_plan receives
     * the planner data of the plan.
     */
    dcp_status (*create_local_plan)(void *context, dcp_saving *saving, dcp_save_plan *plan);

    /**
     * Coordinator: on entry @p plans are the local plans of all ranks, on return what each rank
     * will write. A rank can only write items of its local plan, or boxes inside them.
     * dcp_save_default_create_global_plan() does this as the options say.
     */
    dcp_status (*create_global_plan)(void *context, dcp_saving *saving, dcp_save_plan *const *plans,
                                     int plan_count);

    /**
     * Every rank: receives the final plan of this rank, with the planner data from
     * create_global_plan. The hook may reorder the items and change the data that is sent with the
     * plan; the write_data of a storage writer receives the result. Files that the library writes
     * keep their order. Items must not be added, removed or changed, because the metadata is
     * already complete: that is DCP_ERR_ARGUMENT on all ranks before anything is written. An item
     * that is set or added again is identified by its name, offsets and sizes; `path` is ignored,
     * and `source` may be 0. Called for each save, also with a plan cache.
     */
    dcp_status (*finish_plan)(void *context, dcp_saving *saving, dcp_save_plan *plan);

    /**
     * Every rank: provides the data of an item. Called for objects while the local plan is made,
     * because the plan contains their lengths, and for tensors when they are written, by any
     * thread, several at a time. Allocate memory in this call and free it in `release`. NULL: look
     * up, then transform.
     */
    dcp_status (*resolve_data)(void *context, dcp_saving *saving, const dcp_write_item *item,
                               dcp_write_data *data);
    /** Finds the tensor or object of an item in the state. Called as resolve_data is. */
    dcp_status (*lookup_object)(void *context, dcp_saving *saving, const dcp_write_item *item,
                                const dcp_state **object);
    /** Makes the data of an item from the tensor or object. Called as resolve_data is. */
    dcp_status (*transform_object)(void *context, dcp_saving *saving, const dcp_write_item *item,
                                   const dcp_state *object, dcp_write_data *data);
} dcp_save_planner;

/* ---- what the library does where there is no hook ---- */

/** Calls the `state_dict` of stateful entries and flattens @p state, as the options say. May be
 * called once. */
DCP_API dcp_status dcp_save_default_set_up_planner(dcp_saving *saving, dcp_state *state);
/** Adds an item for each chunk and each object of the state. */
DCP_API dcp_status dcp_save_default_create_local_plan(dcp_saving *saving, dcp_save_plan *plan);
/** Deduplicates replicas as dcp_save_options::replicas says, so that ranks write about equal bytes,
 * and checks that chunks cover their tensors and do not overlap.
 */
DCP_API dcp_status dcp_save_default_create_global_plan(dcp_saving *saving,
                                                       dcp_save_plan *const *plans, int plan_count);
/** Looks up and transforms, with the planner's hooks if it has them. */
DCP_API dcp_status dcp_save_default_resolve_data_sized(dcp_saving *saving,
                                                       const dcp_write_item *item, size_t item_size,
                                                       dcp_write_data *data);

static inline dcp_status
dcp_save_default_resolve_data(dcp_saving *saving, const dcp_write_item *item, dcp_write_data *data)
{
    return dcp_save_default_resolve_data_sized(saving, item, sizeof *item, data);
}

DCP_API dcp_status dcp_save_default_lookup_object_sized(dcp_saving *saving,
                                                        const dcp_write_item *item,
                                                        size_t item_size, const dcp_state **object);

static inline dcp_status dcp_save_default_lookup_object(dcp_saving *saving,
                                                        const dcp_write_item *item,
                                                        const dcp_state **object)
{
    return dcp_save_default_lookup_object_sized(saving, item, sizeof *item, object);
}

/** Tensors: gives the item's elements in the memory of the chunk that contains them. Objects:
 * encodes @p object, which may be any value that a state can hold. */
DCP_API dcp_status dcp_save_default_transform_object_sized(dcp_saving *saving,
                                                           const dcp_write_item *item,
                                                           size_t item_size,
                                                           const dcp_state *object,
                                                           dcp_write_data *data);

static inline dcp_status dcp_save_default_transform_object(dcp_saving *saving,
                                                           const dcp_write_item *item,
                                                           const dcp_state *object,
                                                           dcp_write_data *data)
{
    return dcp_save_default_transform_object_sized(saving, item, sizeof *item, object, data);
}

/** Coordinator, in create_global_plan: sets the planner_data of the metadata, which otherwise holds
 * the paths of all names. @param planner_data any value that can be saved, except tensors;
 * copied. */
DCP_API dcp_status dcp_saving_set_planner_data(dcp_saving *saving, const dcp_state *planner_data);

/* ---- plans ---- */

/** @return number of items. */
DCP_API size_t dcp_save_plan_count(const dcp_save_plan *plan);

/** Describes item @p index. Errors: DCP_ERR_ARGUMENT. */
DCP_API dcp_status dcp_save_plan_item_sized(const dcp_save_plan *plan, size_t index,
                                            dcp_write_item *item, size_t item_size);

static inline dcp_status dcp_save_plan_item(const dcp_save_plan *plan, size_t index,
                                            dcp_write_item *item)
{
    return dcp_save_plan_item_sized(plan, index, item, sizeof *item);
}

/** Replaces item @p index. What @p item points to is copied. Errors: DCP_ERR_ARGUMENT for an
 * invalid item: a path that differs from the name, or a chunk outside its tensor. */
DCP_API dcp_status dcp_save_plan_set_item_sized(dcp_save_plan *plan, size_t index,
                                                const dcp_write_item *item, size_t item_size);

static inline dcp_status dcp_save_plan_set_item(dcp_save_plan *plan, size_t index,
                                                const dcp_write_item *item)
{
    return dcp_save_plan_set_item_sized(plan, index, item, sizeof *item);
}

/** Appends an item, as dcp_save_plan_set_item(). */
DCP_API dcp_status dcp_save_plan_add_sized(dcp_save_plan *plan, const dcp_write_item *item,
                                           size_t item_size);

static inline dcp_status dcp_save_plan_add(dcp_save_plan *plan, const dcp_write_item *item)
{
    return dcp_save_plan_add_sized(plan, item, sizeof *item);
}

/** Removes all items. Items that were read from the plan stay valid. */
DCP_API void dcp_save_plan_clear(dcp_save_plan *plan);

/** @return a dict for the planner's data, which is sent with the plan from a rank to the
 * coordinator and back. It may hold values that can be saved, except tensors. NULL if there is no
 * memory. */
DCP_API dcp_state *dcp_save_plan_planner_data(dcp_save_plan *plan);
/** The same for the storage writer. */
DCP_API dcp_state *dcp_save_plan_storage_data(dcp_save_plan *plan);

#ifdef __cplusplus
}
#endif

#endif
