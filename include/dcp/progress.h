/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file progress.h
 * @brief Watching a save or load while it runs, and stopping it.
 */
#ifndef DCP_PROGRESS_H
#define DCP_PROGRESS_H

#include "version.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The phases of a save or load, in order. */
typedef enum dcp_phase {
    DCP_PHASE_STAGING = 10,  /**< save: taking the state: stateful callbacks, encoding objects */
    DCP_PHASE_PLANNING = 20, /**< planning the writes or reads */
    DCP_PHASE_WRITING = 30,  /**< save: shard files, until they are durable */
    DCP_PHASE_READING = 40,  /**< load: objects and tensors */
    DCP_PHASE_COMMIT = 50    /**< save: making the checkpoint visible; load: putting objects into
                                the tree, stateful callbacks */
} dcp_phase;

/** How far this rank has come. */
typedef struct dcp_progress {
    dcp_phase phase;
    uint64_t bytes_done;  /**< never falls; bytes_total when DCP_PHASE_COMMIT begins */
    uint64_t bytes_total; /**< save: of the shard files' contents; load: of the stored elements that
                             the tensors need; 0 until writing or reading begins */
} dcp_progress;

/**
 * Receives progress: when each phase begins, and while bytes are moved, at most a hundred times a
 * second. Called by the thread that saves or loads or by threads of the library,
 * but never twice at the same time. It should return soon and must not save or load with the same
 * group.
 *
 * @param progress valid during the call.
 * @return true to continue. false cancels: the save or load ends with DCP_ERR_CANCELLED on every
 * rank, as any other failure would (a save leaves no checkpoint, a load may have filled some
 * tensors), and the function is not called again. Once #DCP_PHASE_COMMIT of a save has begun on all
 * ranks, it is too late.
 */
typedef bool (*dcp_progress_function)(void *context, const dcp_progress *progress);

#ifdef __cplusplus
}
#endif

#endif
