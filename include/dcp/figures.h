/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file figures.h
 * @brief Figures of a save or load: time, bytes, files, memory.
 */
#ifndef DCP_FIGURES_H
#define DCP_FIGURES_H

#include "version.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Figures of one save or load on this rank. To get them, set the field `figures` of the options,
 * with size_of set. They are filled in when the call returns, also after a failure, where they show
 * how far it came. Figures that do not apply are 0.
 *
 * Seconds are by the monotonic clock. A phase includes waiting for other ranks in it.
 */
typedef struct dcp_figures {
    size_t size_of; /**< sizeof(dcp_figures), set by the caller, so that the struct can grow */

    double total_seconds;    /**< the whole call; the others are parts of it */
    double planning_seconds; /**< save: planning the writes; load: reading the metadata and planning
                                the reads */
    double staging_seconds;  /**< save: taking the state: walking the tree, stateful callbacks,
                                encoding objects */
    double writing_seconds;  /**< save: writing shard files */
    double reading_seconds;  /**< load: reading objects and tensors */
    double syncing_seconds;  /**< save: waiting for the disk; the mean of the threads that write */
    double commit_seconds;   /**< save: waiting for all ranks, then making the checkpoint visible;
                                load: putting objects into the tree, stateful callbacks */

    uint64_t bytes_moved;  /**< save: written to shard files, including headers and footers; load:
                              put into tensors */
    uint64_t bytes_wanted; /**< save: of the tensors and objects that this rank writes; load: of the
                              stored elements that this rank's tensors need */
    uint64_t bytes_read;   /**< load: read from the files that hold data, including headers and
                                footers */
    uint64_t items;        /**< save: tensor chunks or slices of them, and objects, that were to be
                              written; load: regions of tensors, and objects, that were to be read */
    uint64_t files;        /**< save: shard files made; load: times that a file was opened */
    uint64_t peak_memory;  /**< peak memory of the library for this call, without the state: plans,
                              buffers, stacks of threads, staging memory; not the chunks and objects
                              that a load puts into the tree */
    bool direct;           /**< a file was written or read without the page cache */
    bool ring;             /**< some transfers used io_uring */
    uint64_t bytes_exchanged; /**< load: that this rank got from other ranks instead of reading
                                 them, as they are stored; see #DCP_READING_COOPERATIVE */
    bool plan_reused;         /**< the plan of the save or load before was used again, see
                                 dcp_save_plan_cache and dcp_load_plan_cache */
    /** load: of what this rank read for tensors, also for other ranks, as elements are stored:
     * bytes that were checked against a checksum, and bytes that were not: because there is none
     * (safetensors files), because it is that of a whole record of which only a part was wanted, or
     * because of #DCP_VERIFY_NONE. */
    uint64_t bytes_checked;
    uint64_t bytes_unchecked; /**< see bytes_checked */
    /** save: dcp_save_options::check_replicas, exchanges and waiting for other ranks in it; part of
     * planning_seconds */
    double replica_check_seconds;
    uint64_t missing_tensors;  /**< save, at the coordinator: tensors that were not saved as a
                                  whole, see dcp_save_options::allow_partial */
    uint64_t missing_elements; /**< and their elements that were not saved */
} dcp_figures;

#ifdef __cplusplus
}
#endif

#endif
