/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file load_planner.h
 * @brief Hooks into the planning of a load: which stored names are loaded, what is read, and into
 * which memory.
 *
 * A planner is a table of hooks (PyTorch's LoadPlanner). If a hook is NULL, the library's default
 * is used. Hooks can call the defaults, whose names begin with `dcp_load_default_`. The sequence is
 * PyTorch's:
 *
 *  1. `set_up_planner` on every rank
 *  2. `create_local_plan` on every rank
 *  3. `create_global_plan` on the coordinator
 *  4. `finish_plan` on every rank
 *  5. `resolve_bytes` and `load_bytes` on every rank, for each object that it reads
 *  6. `resolve_tensor` (`lookup_tensor`, then `transform_tensor`) and `commit_tensor` on every
 * rank, for each part of a tensor that it reads
 *
 * The load's strictness is applied to missing and mismatched names between steps 2 and 3. No
 * destination is changed before step 4 has succeeded on every rank. A hook that fails sets the
 * message with dcp_error_set(); every rank receives it. All ranks must have the same hooks, which
 * is checked.
 *
 * The plans are checked: each part lies inside its chunk and inside the stored chunk, and the parts
 * of a chunk cover it without overlap. A name of which nothing is read is an error, unless the
 * strictness makes no difference an error.
 *
 * Threading: hooks are called by the thread that called dcp_load(), or by threads of a custom
 * storage reader, one at a time.
 */
#ifndef DCP_LOAD_PLANNER_H
#define DCP_LOAD_PLANNER_H

#include "checkpoint.h"
#include "plan_item.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A load in progress, as hooks see it; valid until dcp_load() returns. */
typedef struct dcp_loading dcp_loading;

/**
 * The hooks of a planner. `context` is passed to each of them. Each may be NULL, and returns DCP_OK
 * or a failure. The struct is read when the load begins and may be freed when it has ended.
 */
typedef struct dcp_load_planner {
    size_t size_of; /**< sizeof(dcp_load_planner), so that the struct can grow */
    void *context;

    /**
     * Every rank: the load begins. The hook calls dcp_load_default_set_up_planner() with the state
     * to fill. That may be another state than @p state; it must stay valid until the load has
     * ended. The hook may then rename entries with dcp_loading_rename().
     * @param metadata the stored metadata, without data; dcp_checkpoint_planner_data() returns the
     * data of the save planner.
     */
    dcp_status (*set_up_planner)(void *context, dcp_loading *loading, dcp_state *state,
                                 const dcp_checkpoint *metadata, bool is_coordinator);

    /**
     * Every rank: fills the empty @p plan with the items that this rank reads. Most hooks call
     * dcp_load_default_create_local_plan() and then change the plan. create_global_plan receives
     * the planner data of the plan.
     */
    dcp_status (*create_local_plan)(void *context, dcp_loading *loading, dcp_load_plan *plan);

    /** Coordinator: may change what each rank reads. A rank may get items of another rank if it has
     * their destinations. NULL: plans are not changed. */
    dcp_status (*create_global_plan)(void *context, dcp_loading *loading,
                                     dcp_load_plan *const *plans, int plan_count);

    /** Every rank: may change the plan that the coordinator returned. NULL: it is not changed. */
    dcp_status (*finish_plan)(void *context, dcp_loading *loading, dcp_load_plan *plan);

    /**
     * Every rank: an object has been read. NULL: it is decoded, and put into the state when
     * everything has been read.
     * @param bytes the stored stream, valid during the call; dcp_object_decode() decodes it.
     */
    dcp_status (*load_bytes)(void *context, dcp_loading *loading, const dcp_read_item *item,
                             const void *bytes, size_t size);

    /** Every rank: provides memory of @p size bytes for an object's stream, which is used until
     * load_bytes returns. NULL: the library allocates it. */
    dcp_status (*resolve_bytes)(void *context, dcp_loading *loading, const dcp_read_item *item,
                                size_t size, void **bytes);

    /**
     * Every rank: sets the destination of an item's elements in @p tensor: `dtype`, `device`,
     * `data` and, if `strided`, `strides`. `ndim` and `sizes` must be the item's. Stored elements
     * of another real dtype are converted. `data` NULL: the load allocates memory that the state
     * owns, in its dtype. NULL hook: look up, then transform.
     */
    dcp_status (*resolve_tensor)(void *context, dcp_loading *loading, const dcp_read_item *item,
                                 dcp_tensor *tensor);
    /** Every rank: the elements are in the memory that resolve_tensor set. NULL: nothing is
     * done. */
    dcp_status (*commit_tensor)(void *context, dcp_loading *loading, const dcp_read_item *item,
                                const dcp_tensor *tensor);

    /** Gives the whole chunk that an item is a part of; `data` NULL: it has no memory yet. */
    dcp_status (*lookup_tensor)(void *context, dcp_loading *loading, const dcp_read_item *item,
                                dcp_tensor *chunk);
    /** Narrows the chunk that was looked up to the item's part. */
    dcp_status (*transform_tensor)(void *context, dcp_loading *loading, const dcp_read_item *item,
                                   dcp_tensor *tensor);
} dcp_load_planner;

/* ---- what the library does where there is no hook ---- */

/** Calls the `state_dict` of stateful entries and flattens @p state, as the options say. May be
 * called once. */
DCP_API dcp_status dcp_load_default_set_up_planner(dcp_loading *loading, dcp_state *state);
/** Adds an item for each part of each stored chunk that this rank's chunks need, and for each
 * object. Missing and mismatched names go to the report. May be called once. */
DCP_API dcp_status dcp_load_default_create_local_plan(dcp_loading *loading, dcp_load_plan *plan);
/** Decodes the object. It is put into the state when everything has been read. */
DCP_API dcp_status dcp_load_default_load_bytes(dcp_loading *loading, const dcp_read_item *item,
                                               const void *bytes, size_t size);
DCP_API dcp_status dcp_load_default_resolve_bytes(dcp_loading *loading, const dcp_read_item *item,
                                                  size_t size, void **bytes);
/** Looks up and transforms, with the planner's hooks if it has them. */
DCP_API dcp_status dcp_load_default_resolve_tensor_sized(dcp_loading *loading,
                                                         const dcp_read_item *item,
                                                         dcp_tensor *tensor, size_t tensor_size);

static inline dcp_status
dcp_load_default_resolve_tensor(dcp_loading *loading, const dcp_read_item *item, dcp_tensor *tensor)
{
    return dcp_load_default_resolve_tensor_sized(loading, item, tensor, sizeof *tensor);
}

/** Gives the chunk of the state. */
DCP_API dcp_status dcp_load_default_lookup_tensor_sized(dcp_loading *loading,
                                                        const dcp_read_item *item,
                                                        dcp_tensor *chunk, size_t chunk_size);

static inline dcp_status
dcp_load_default_lookup_tensor(dcp_loading *loading, const dcp_read_item *item, dcp_tensor *chunk)
{
    return dcp_load_default_lookup_tensor_sized(loading, item, chunk, sizeof *chunk);
}

/** Narrows the chunk to the item's part. */
DCP_API dcp_status dcp_load_default_transform_tensor_sized(dcp_loading *loading,
                                                           const dcp_read_item *item,
                                                           dcp_tensor *tensor, size_t tensor_size);

static inline dcp_status dcp_load_default_transform_tensor(dcp_loading *loading,
                                                           const dcp_read_item *item,
                                                           dcp_tensor *tensor)
{
    return dcp_load_default_transform_tensor_sized(loading, item, tensor, sizeof *tensor);
}

/**
 * In set_up_planner, after the default: loads @p name of the state from @p stored_name. Takes
 * precedence over dcp_load_options::renames. Errors: DCP_ERR_NOT_FOUND if the state has no such
 * name.
 */
DCP_API dcp_status dcp_loading_rename(dcp_loading *loading, const char *name,
                                      const char *stored_name);

/** @return number of names of the state, after the default set-up. */
DCP_API size_t dcp_loading_name_count(const dcp_loading *loading);
/** @return name @p index of the state, flattened; NULL if there is none. */
DCP_API const char *dcp_loading_name(const dcp_loading *loading, size_t index);

#ifdef __cplusplus
}
#endif

#endif
