/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file whole_state.h
 * @brief Whole states from sharded ones, and back, in memory: through a process group, without a
 * checkpoint.
 *
 * Source: torch.distributed.checkpoint.state_dict (2.13), StateDictOptions of
 * get_model_state_dict() and set_model_state_dict(), with the names of its options.
 */
#ifndef DCP_WHOLE_STATE_H
#define DCP_WHOLE_STATE_H

#include "load.h"
#include "optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Options of getting a state. All zero copies it. Every rank must pass the same values. */
typedef struct dcp_gather_state_options {
    dcp_group *group;       /**< the ranks that hold the state together; NULL: this process alone */
    double timeout_seconds; /**< deadline of each wait for other ranks; 0 means 1800 */
    /**
     * Tensors become whole: chunks are gathered from all ranks. All ranks get all names, also those
     * that only some ranks hold (stages of a pipeline); of replicas the lowest rank's is used. Each
     * byte is sent from the rank that has it directly to those that get it, through the group's
     * `all_to_all`. Memory in addition to the result: about 32 MiB, and objects in their stored
     * form.
     */
    bool full_state_dict;
    /** Tensors on devices are copied to host memory. With `full_state_dict` only rank 0 gets the
     * state. */
    bool cpu_offload;
    /** Entries under the names of `parameters` that are frozen are left out. */
    bool ignore_frozen_params;
    const dcp_parameter *parameters; /**< borrowed for the call; groups do not matter */
    size_t parameter_count;
} dcp_gather_state_options;

/**
 * Adds the state of @p source to @p into, a dict of another tree. Collective over the group with
 * `full_state_dict`.
 *
 * The tree of @p into owns the memory of whole tensors and of tensors that came from devices: on
 * the device of this rank's chunk, or in host memory if it has none. The memory of other tensors is
 * borrowed; values are copied. Stateful entries are replaced by the dicts that their `state_dict`
 * fills; empty dicts are left out.
 *
 * Errors: those of the checks of a save: DCP_ERR_SHAPE, DCP_ERR_DTYPE, DCP_ERR_KIND,
 * DCP_ERR_OVERLAP, DCP_ERR_COVERAGE if the states of the ranks do not fit together;
 * DCP_ERR_UNSUPPORTED for objects that cannot be sent. The same on every rank. After a failure the
 * content of @p into is undefined.
 */
DCP_API dcp_status dcp_gather_state_sized(dcp_state *source,
                                          const dcp_gather_state_options *options,
                                          size_t options_size, dcp_state *into);

static inline dcp_status dcp_gather_state(dcp_state *source,
                                          const dcp_gather_state_options *options, dcp_state *into)
{
    return dcp_gather_state_sized(source, options, sizeof *options, into);
}

/** Options of setting a state. All zero is the default. Every rank must pass the same values. */
typedef struct dcp_distribute_state_options {
    dcp_group *group;       /**< NULL: this process alone */
    double timeout_seconds; /**< deadline of each wait for other ranks; 0 means 1800 */
    /** Rank 0 has the whole state, and sends each rank only the parts that it wants. Memory at each
     * rank: about 32 MiB, and objects in their stored form. */
    bool broadcast_from_rank0;
    /** Which differences of names are errors; PyTorch's strict=True is #DCP_STRICT_RAISE_ALL,
     * strict=False is #DCP_STRICT_PARTIAL. */
    dcp_strictness strictness;
    bool convert; /**< convert between real dtypes where they differ; else that is an error */
} dcp_distribute_state_options;

/**
 * Fills @p destination from @p source as a load does from a checkpoint: by flattened names, tensors
 * in place (whole ones into chunks, chunks into chunks that they cover), objects by copies,
 * the callbacks of stateful entries are called. Collective over the group.
 *
 * @param source this rank's state; with `broadcast_from_rank0` used only at rank 0, NULL elsewhere.
 * @param report if not NULL, receives a report, owned by the caller, also when the call failed
 * because of what is in it; NULL on other failures. With `broadcast_from_rank0` it is the same on
 * every rank, and a name is unexpected if no rank wants it.
 * Errors: as dcp_load(), the same on every rank; DCP_ERR_COVERAGE if the source's chunks do not
 * cover the wanted chunks.
 */
DCP_API dcp_status dcp_distribute_state_sized(dcp_state *destination, dcp_state *source,
                                              const dcp_distribute_state_options *options,
                                              size_t options_size, dcp_load_report **report);

static inline dcp_status dcp_distribute_state(dcp_state *destination, dcp_state *source,
                                              const dcp_distribute_state_options *options,
                                              dcp_load_report **report)
{
    return dcp_distribute_state_sized(destination, source, options, sizeof *options, report);
}

#ifdef __cplusplus
}
#endif

#endif
