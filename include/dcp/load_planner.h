/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file load_planner.h
 * @brief Taking part in the planning of a load: under which names things are looked for, what is
 * read, and where it goes.
 *
 * A planner is a table of hooks (PyTorch's LoadPlanner). A hook that is NULL does what the library
 * does by itself, and the same can be called from inside of a hook, by the names that begin with
 * `dcp_load_default_`: a caller overrides one and keeps the rest. The sequence is PyTorch's:
 *
 *  1. `set_up_planner` on every rank
 *  2. `create_local_plan` on every rank
 *  3. `create_global_plan` on the coordinator
 *  4. `finish_plan` on every rank
 *  5. `resolve_bytes` and `load_bytes` on every rank, for each object that it reads
 *  6. `resolve_tensor` (`lookup_tensor`, then `transform_tensor`) and `commit_tensor` on every
 * rank, for each part of a tensor that it reads
 *
 * Names that are missing or do not fit are judged by the load's strictness between 2 and 3; no
 * destination is touched before 4 has succeeded on every rank. A hook that fails sets the message
 * with dcp_error_set(), which reaches every rank. All ranks must have the same hooks; which of them
 * there are is compared.
 *
 * What a planner asks for is checked: a part lies inside of its chunk and of the stored chunk, no
 * two parts of a chunk overlap, and together they are all of it. A name of which nothing is read is
 * an error unless the strictness is one of those by which nothing is.
 *
 * Threading: hooks are called by the thread that called dcp_load(), unless a custom storage
 * reader brings threads, and never two of them at a time.
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
     * that is to be filled, which may be another one than it was given and must live until the load
     * has ended, and may then look for names under other ones by dcp_loading_rename().
     * @param metadata what is stored, for looking only; dcp_checkpoint_planner_data() is what the
     * save planner of each rank had to say.
     */
    dcp_status (*set_up_planner)(void *context, dcp_loading *loading, dcp_state *state,
                                 const dcp_checkpoint *metadata, bool is_coordinator);

    /**
     * Every rank: fills @p plan, which is empty, with what this rank reads; mostly by
     * dcp_load_default_create_local_plan(), and then changes it. What it puts into the plan's
     * planner data is there for create_global_plan.
     */
    dcp_status (*create_local_plan)(void *context, dcp_loading *loading, dcp_load_plan *plan);

    /** Coordinator: may change what each rank reads. Ranks may be given what others asked for, if
     * they have the destinations. NULL: plans stay as they are. */
    dcp_status (*create_global_plan)(void *context, dcp_loading *loading,
                                     dcp_load_plan *const *plans, int plan_count);

    /** Every rank: may change what came back from the coordinator. NULL: it stays as it is. */
    dcp_status (*finish_plan)(void *context, dcp_loading *loading, dcp_load_plan *plan);

    /**
     * Every rank: an object has been read. NULL: it is decoded and, when everything has been read,
     * put into the state.
     * @param bytes the stored stream, valid during the call; dcp_object_decode() makes a value of
     * it.
     */
    dcp_status (*load_bytes)(void *context, dcp_loading *loading, const dcp_read_item *item,
                             const void *bytes, size_t size);

    /** Every rank: gives memory of @p size bytes for an object's stream, to be used until
     * load_bytes returns. NULL: the library's. */
    dcp_status (*resolve_bytes)(void *context, dcp_loading *loading, const dcp_read_item *item,
                                size_t size, void **bytes);

    /**
     * Every rank: where the elements of an item go. `dtype`, `device`, `data` and, if `strided`,
     * `strides` of @p tensor say so; `ndim` and `sizes` must be the item's. Elements are converted
     * if those stored are of another real dtype. `data` NULL: memory is allocated that the state
     * owns, in its dtype. NULL hook: look up, then transform.
     */
    dcp_status (*resolve_tensor)(void *context, dcp_loading *loading, const dcp_read_item *item,
                                 dcp_tensor *tensor);
    /** Every rank: the elements have arrived where resolve_tensor said. NULL: nothing is done. */
    dcp_status (*commit_tensor)(void *context, dcp_loading *loading, const dcp_read_item *item,
                                const dcp_tensor *tensor);

    /** The whole chunk that an item's part belongs to; `data` NULL: it has no memory yet. */
    dcp_status (*lookup_tensor)(void *context, dcp_loading *loading, const dcp_read_item *item,
                                dcp_tensor *chunk);
    /** Makes the part of what was looked up. */
    dcp_status (*transform_tensor)(void *context, dcp_loading *loading, const dcp_read_item *item,
                                   dcp_tensor *tensor);
} dcp_load_planner;

/* ---- what the library does where there is no hook ---- */

/** Asks stateful entries for their state and flattens @p state, as the options say. Once. */
DCP_API dcp_status dcp_load_default_set_up_planner(dcp_loading *loading, dcp_state *state);
/** Adds an item for each part of each stored chunk that this rank's chunks need, and for each
 * object. What is missing or does not fit goes to the report. Once. */
DCP_API dcp_status dcp_load_default_create_local_plan(dcp_loading *loading, dcp_load_plan *plan);
/** Decodes the object, to be put into the state when everything has been read. */
DCP_API dcp_status dcp_load_default_load_bytes(dcp_loading *loading, const dcp_read_item *item,
                                               const void *bytes, size_t size);
DCP_API dcp_status dcp_load_default_resolve_bytes(dcp_loading *loading, const dcp_read_item *item,
                                                  size_t size, void **bytes);
/** Looks up and transforms, by the planner's hooks where it has them. */
DCP_API dcp_status dcp_load_default_resolve_tensor_sized(dcp_loading *loading,
                                                         const dcp_read_item *item,
                                                         dcp_tensor *tensor, size_t tensor_size);

static inline dcp_status
dcp_load_default_resolve_tensor(dcp_loading *loading, const dcp_read_item *item, dcp_tensor *tensor)
{
    return dcp_load_default_resolve_tensor_sized(loading, item, tensor, sizeof *tensor);
}

/** The chunk as it is in the state. */
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
 * In set_up_planner, after the default: @p name of the state is stored as @p stored_name, whatever
 * dcp_load_options::renames says of it.
 * Errors: DCP_ERR_NOT_FOUND if the state has no such name.
 */
DCP_API dcp_status dcp_loading_rename(dcp_loading *loading, const char *name,
                                      const char *stored_name);

/** @return number of names of the state, after the default set-up. */
DCP_API size_t dcp_loading_name_count(const dcp_loading *loading);
/** @return name @p index of the state, flattened; NULL if there is none. */
DCP_API const char *dcp_loading_name(const dcp_loading *loading, size_t index);

/** Decodes the stored stream of an object and adds the value to @p parent under @p key (as when
 * building a tree). */
DCP_API dcp_status dcp_object_decode(const void *bytes, size_t size, dcp_state *parent,
                                     const char *key);

#ifdef __cplusplus
}
#endif

#endif
