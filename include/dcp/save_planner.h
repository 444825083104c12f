/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file save_planner.h
 * @brief Taking part in the planning of a save: which chunks and objects are written, by which
 * rank, under which names and in which form.
 *
 * A planner is a table of hooks (PyTorch's SavePlanner). A hook that is NULL does what the library
 * does by itself, and the same can be called from inside of a hook, by the names that begin with
 * `dcp_save_default_`: a caller overrides one and keeps the rest. The sequence is PyTorch's:
 *
 *  1. `set_up_planner` on every rank
 *  2. `create_local_plan` on every rank
 *  3. `create_global_plan` on the coordinator
 *  4. `finish_plan` on every rank
 *  5. `resolve_data` (`lookup_object`, then `transform_object`) on every rank, for what it writes
 *
 * Nothing is written before 4 has succeeded on every rank. A hook that fails sets the message with
 * dcp_error_set(), which reaches every rank. All ranks must have the same hooks; which of them
 * there are is compared.
 *
 * What a planner asks for is checked before anything is written: each rank writes what is in its
 * local plan, no two write the same, and the chunks of a name cover its tensor.
 */
#ifndef DCP_SAVE_PLANNER_H
#define DCP_SAVE_PLANNER_H

#include "plan_item.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A save in progress, as hooks see it; valid until dcp_save() returns. */
typedef struct dcp_saving dcp_saving;

/** What one rank is to write: a list of items, and two dicts that travel with it. */
typedef struct dcp_save_plan dcp_save_plan;

/** One chunk of a tensor, or one object (PyTorch's WriteItem). What is got from a plan is borrowed
 * from it, until the hook returns. */
typedef struct dcp_write_item {
    dcp_item_index index;
    /** The way to it in a nested state, which joined by dots is the name; `path_length` 0: the name
     * is its only part. */
    const dcp_path_part *path;
    size_t path_length;
    bool is_tensor; /**< else an object */

    /** Tensors: as it is written. Elements are converted if those in memory are of another real
     * dtype. */
    dcp_dtype dtype;
    bool requires_grad;
    const int64_t *global_shape; /**< tensors: `index.ndim` values */
    const int64_t *sizes;        /**< tensors: of the chunk, which begins at `index.offsets` */

    /** Objects: bytes of the whole stream; 0 while the local plan is made. */
    uint64_t object_length;
    /** In a local plan: where dcp_save_default_lookup_object() finds it, whatever its name has
     * become; 0 for an item that a hook has added: then by its name. */
    uint64_t source;
} dcp_write_item;

/**
 * What is to be written for an item: elements of a tensor in memory, or bytes. All pointers are
 * borrowed until `release` is called, or until the save has ended where there is none. The struct
 * will not grow, as hooks keep copies of it.
 */
typedef struct dcp_write_data {
    dcp_dtype dtype;        /**< tensors: of the elements in memory */
    dcp_device device;      /**< tensors: where `data` is */
    const void *data;       /**< tensors: the first element of the item's chunk */
    const int64_t *strides; /**< tensors: of `data`, in elements, one for each dimension; NULL:
                                 row-major without gaps */
    const void *bytes; /**< objects: the stream as it is stored, which is what PyTorch's torch.save
                            would make of the object if PyTorch is to read it */
    size_t size;       /**< objects: of the stream */
    /** NULL, or called once with `owner` when the data is not needed any more, on any thread. */
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
     * that is to be saved, which may be another one than it was given and must live until the save
     * has ended, or in dcp_save_async() as long as the caller's.
     */
    dcp_status (*set_up_planner)(void *context, dcp_saving *saving, dcp_state *state,
                                 const dcp_storage_meta *storage_meta, bool is_coordinator);

    /**
     * Every rank: fills @p plan, which is empty, with what this rank holds; mostly by
     * dcp_save_default_create_local_plan(), and then changes it. What it puts into the plan's
     * planner data is there for create_global_plan.
     */
    dcp_status (*create_local_plan)(void *context, dcp_saving *saving, dcp_save_plan *plan);

    /**
     * Coordinator: @p plans hold what each rank offers to write; afterwards what each is to write.
     * A rank may be given what is in the plan that it offered, or a box inside of it, and nothing
     * else. dcp_save_default_create_global_plan() does that as the options say.
     */
    dcp_status (*create_global_plan)(void *context, dcp_saving *saving, dcp_save_plan *const *plans,
                                     int plan_count);

    /**
     * Every rank: what this rank will write, with what create_global_plan left in the planner data
     * of its plan. The hook may put the items in another order and change the data that travels
     * with the plan: a storage writer's write_data gets the plan as the hook leaves it. Files that
     * the library writes keep their order. The metadata is complete by then, so that no item may be
     * added, removed or changed, which is DCP_ERR_ARGUMENT on all ranks before anything is written.
     * An item that is set or added again is recognized by its name, offsets and sizes; `path` is
     * not looked at, and `source` may be 0. Called for each save, also with a plan cache.
     */
    dcp_status (*finish_plan)(void *context, dcp_saving *saving, dcp_save_plan *plan);

    /**
     * Every rank: what to write for an item. Called for objects while the local plan is made, since
     * their lengths belong to it, and for tensors when they are written, by any thread, several at
     * a time; memory that it takes is best taken then, and given back by `release`. NULL: look up,
     * then transform.
     */
    dcp_status (*resolve_data)(void *context, dcp_saving *saving, const dcp_write_item *item,
                               dcp_write_data *data);
    /** Finds the tensor or object of an item in the state. As resolve_data otherwise. */
    dcp_status (*lookup_object)(void *context, dcp_saving *saving, const dcp_write_item *item,
                                const dcp_state **object);
    /** Makes the data of an item from what was looked up. As resolve_data otherwise. */
    dcp_status (*transform_object)(void *context, dcp_saving *saving, const dcp_write_item *item,
                                   const dcp_state *object, dcp_write_data *data);
} dcp_save_planner;

/* ---- what the library does where there is no hook ---- */

/** Asks stateful entries for their state and flattens @p state, as the options say. Once. */
DCP_API dcp_status dcp_save_default_set_up_planner(dcp_saving *saving, dcp_state *state);
/** Adds an item for each chunk and each object of the state. */
DCP_API dcp_status dcp_save_default_create_local_plan(dcp_saving *saving, dcp_save_plan *plan);
/** Deduplicates what several ranks hold, so that ranks write about equally much, as
 * dcp_save_options::replicas says, and checks that chunks cover their tensors and do not overlap.
 */
DCP_API dcp_status dcp_save_default_create_global_plan(dcp_saving *saving,
                                                       dcp_save_plan *const *plans, int plan_count);
/** Looks up and transforms, by the planner's hooks where it has them. */
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

/** Tensors: the elements where they are, of the chunk that holds the item's. Objects: encodes
 * @p object, which may be any value that a state can hold. */
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

/** Coordinator, in create_global_plan: the value that the metadata gets as planner_data in the
 * place of the paths of all names. @param planner_data any value that can be saved, but no tensor;
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

/** Replaces item @p index. What @p item points to is copied. Errors: DCP_ERR_ARGUMENT for what is
 * no item: a path that is not the name, a chunk that leaves its tensor. */
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

/** Removes all items; those that were got from the plan stay valid. */
DCP_API void dcp_save_plan_clear(dcp_save_plan *plan);

/** @return a dict of what the planner wants to travel with the plan: from a rank to the
 * coordinator, and back. Values that can be saved, but no tensors. NULL if there is no memory. */
DCP_API dcp_state *dcp_save_plan_planner_data(dcp_save_plan *plan);
/** The same for the storage writer. */
DCP_API dcp_state *dcp_save_plan_storage_data(dcp_save_plan *plan);

#ifdef __cplusplus
}
#endif

#endif
