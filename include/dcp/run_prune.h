/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file run_prune.h
 * @brief Which checkpoints of a run are kept, and removing the others.
 *
 * Only checkpoints that dcp/run.h made in this run are counted and removed: direct children of the
 * run's directory whose whole name has its pattern and which carry its identity. Checkpoints that
 * are not whole are not counted. Everything else stays, and is not an error. Runs of other
 * frameworks are pruned if their layout is named (dcp_run_prune_options::layout).
 *
 * A removal first takes away durably what makes it a checkpoint (dcp_checkpoint_remove()), so that
 * one that was interrupted never looks whole, and the next one goes on with it.
 */
#ifndef DCP_RUN_PRUNE_H
#define DCP_RUN_PRUNE_H

#include "storage.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Which checkpoints stay: those that any of the rules keeps, and always the newest whole one and
 * those that are pinned. All zero but `size_of`: all stay. */
typedef struct dcp_run_keep {
    size_t size_of;      /**< sizeof(dcp_run_keep), so that the struct can grow */
    int32_t last;        /**< this many of the newest */
    int64_t every_steps; /**< those whose step is a multiple */
    int32_t best;        /**< the best so many by `metric`; of equal ones the newer */
    const char *metric;  /**< name of a number of dcp_run_note(), or among dcp_run_options::info */
    bool higher_is_better;
    double younger_seconds; /**< those saved less long ago by the clock; what was saved in the
                                 future, as a clock that was set back makes it look, is young */
    double pause_seconds;   /**< between two removals, so that a slow file system is not flooded */
} dcp_run_keep;

/** What becomes of a checkpoint. */
typedef enum dcp_run_verdict {
    DCP_RUN_KEPT = 0,     /**< a rule keeps it */
    DCP_RUN_REMOVED = 10, /**< it was removed; with `dry_run`, it would be */
    DCP_RUN_LEFT = 20     /**< it is none of this run's whole ones, or its removal failed */
} dcp_run_verdict;

/** Called for each name that has the run's pattern, oldest step first. @param why "one of the last
 * 3"; valid during the call. */
typedef void (*dcp_run_verdict_function)(void *context, const char *name, dcp_run_verdict verdict,
                                         const char *why);

/** How a run is pruned. All zero removes nothing. */
typedef struct dcp_run_prune_options {
    const dcp_storage *storage; /**< where the run is; NULL: in the file system */
    const dcp_run_keep *keep;   /**< NULL: all are kept */
    const char *identity;       /**< of the run; NULL: as its directory says */
    bool dry_run;               /**< nothing is removed */
    /** Whole checkpoints of later steps are not touched; with `has_bound`. A job that saves gives
     * the step that it has committed. */
    int64_t bound;
    bool has_bound;
    dcp_run_verdict_function verdict; /**< optional */
    void *verdict_context;
    bool (*stopped)(void *context); /**< no further removal is begun once it says so; optional */
    void *stopped_context;
    /** Asked before a checkpoint is removed, and may wait: why it must stay after all, valid until
     * the next call; NULL: it may go. Optional. */
    const char *(*spared)(void *context, const char *name);
    void *spared_context;
    /** Prunes a run that another framework keeps: checkpoints of its layout, as
     * dcp_run_checkpoint::framework names it ("torchtitan"), with "-" or "_" for spaces and in any
     * case. Nothing tells whose they are, so it must be named, and no job may save there meanwhile.
     * Besides what the rules keep, all that a mark or a link beside the checkpoints names stays.
     * Names are relative to the run. NULL: only this library's own are touched. */
    const char *layout;
} dcp_run_prune_options;

/**
 * Removes the checkpoints of a run that no rule keeps, oldest first, and what dead saves of this
 * run have left of steps before its newest whole one, also where a save died before it wrote
 * any data. A checkpoint that is being saved, as its owner mark shows, is left.
 * @param removed number of checkpoints; may be NULL.
 * Errors: DCP_ERR_NOT_FOUND if the directory holds no run of dcp/run.h and no layout was named,
 * DCP_ERR_DUPLICATE if several subdirectories hold runs, DCP_ERR_KIND if a layout was named for a
 * run of dcp/run.h, DCP_ERR_ARGUMENT, DCP_ERR_NO_MEMORY. A removal that fails is reported as a
 * verdict and logged; it is the result after all others were tried.
 */
DCP_API dcp_status dcp_run_prune_sized(const char *path, const dcp_run_prune_options *options,
                                       size_t options_size, uint64_t *removed);

static inline dcp_status dcp_run_prune(const char *path, const dcp_run_prune_options *options,
                                       uint64_t *removed)
{
    return dcp_run_prune_sized(path, options, sizeof *options, removed);
}

/** How a checkpoint is pinned. All zero is the default. */
typedef struct dcp_run_pin_options {
    const dcp_storage *storage; /**< where the run is; NULL: in the file system */
} dcp_run_pin_options;

/**
 * Pins a checkpoint, so that it is never pruned, or unpins it: a file `.dcp_pin.NAME` beside it.
 * @param path of the run. @param name of the checkpoint in it. @param options NULL: all defaults.
 * Errors: DCP_ERR_ARGUMENT (a name with a slash), DCP_ERR_NOT_FOUND (no such checkpoint; to unpin:
 * it is not pinned), and the storage's.
 */
DCP_API dcp_status dcp_run_pin_sized(const char *path, const char *name, bool pinned,
                                     const dcp_run_pin_options *options, size_t options_size);

static inline dcp_status dcp_run_pin(const char *path, const char *name, bool pinned,
                                     const dcp_run_pin_options *options)
{
    return dcp_run_pin_sized(path, name, pinned, options, sizeof *options);
}

#ifdef __cplusplus
}
#endif

#endif
