/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file estimate.h
 * @brief An estimate of the memory and disk space of a save, before it begins.
 */
#ifndef DCP_ESTIMATE_H
#define DCP_ESTIMATE_H

#include "save.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The result of dcp_save_estimate(). */
typedef struct dcp_estimate {
    size_t size_of; /**< sizeof(dcp_estimate), set by the caller, so that the struct can grow */

    uint64_t memory;          /**< peak memory of this rank, without the state; at the coordinator
                                 with the plans of all ranks */
    uint64_t smallest_memory; /**< the smallest sufficient memory_limit; the same on all ranks. An
                                 asynchronous save with hooks may need less, if its threads that
                                 stage the state end early */
    uint64_t bytes;           /**< on disk: this rank's shard files */
    uint64_t files;           /**< shard files of this rank */
    uint64_t total_bytes;     /**< on disk: all files of all ranks, with metadata and extra files. A
                                 checkpoint that is replaced takes additional space until the end of the
                                 save */
    uint64_t total_files;     /**< of all ranks, with metadata */
    uint64_t staging_memory;  /**< the part of `memory` for the copies of an asynchronous save; 0
                                 without a `chain` */
} dcp_estimate;

/**
 * Estimates the needs of dcp_save() with the same arguments or, with a `chain`, of
 * dcp_save_async(), including staging memory. The memory of a custom stager and of hooks is not
 * counted. Nothing is written. A planner's hooks are called up to finish_plan, a storage writer's
 * are not. Collective over the group, because the division of the writing depends on the chunks of
 * all ranks. Makes all plans of the save (and calls stateful entries), and takes as much memory as
 * they do, regardless of memory_limit.
 *
 * Sizes on disk are exact, except for compressed saves, where they are upper bounds, and for `info`
 * that changes.
 *
 * @param path as for dcp_save(); an existing checkpoint is not refused.
 * @param estimate with size_of set.
 * Errors: those of dcp_save() that come before writing.
 */
DCP_API dcp_status dcp_save_estimate_sized(dcp_state *state, const char *path,
                                           const dcp_save_options *options, size_t options_size,
                                           dcp_estimate *estimate);

static inline dcp_status dcp_save_estimate(dcp_state *state, const char *path,
                                           const dcp_save_options *options, dcp_estimate *estimate)
{
    return dcp_save_estimate_sized(state, path, options, sizeof *options, estimate);
}

#ifdef __cplusplus
}
#endif

#endif
