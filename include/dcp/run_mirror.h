/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file run_mirror.h
 * @brief Mirrors: other places that get a copy of each checkpoint of a run.
 *
 * A run that has mirrors (dcp_run_options::mirrors) copies what it has committed there, each mirror
 * by a thread of its own at rank 0, as dcp_checkpoint_copy() does it: verified, and owning what it
 * writes, so that two jobs with the same mirror do not mix their copies. Neither a slow nor a
 * failed mirror delays a save or makes it fail. A copy that failed is tried again after the next
 * save, and after a minute, two, four and so on up to an hour. Failures are logged, reported by
 * dcp_run_mirror_status(), and written to the figures.
 *
 * Retention waits for copies: a checkpoint that no rule keeps stays where its copy is under way,
 * until dcp_run_mirror::wait_seconds after its save, and where its copy has failed. A later save
 * removes it once it is copied.
 *
 * dcp_run_resume() takes the mirrors for copies of the same run: where one has a newer checkpoint
 * than the run's directory, or a newer save of the same step, it is copied back first, but for
 * files that are whole already. A checkpoint that turns out to be damaged is repaired from a mirror
 * that has the same save. A run whose directory is empty takes its identity from its mirrors; if
 * one of them cannot be reached then, that is an error, and no fresh start.
 *
 * Pins are copied, their removal is not: from the mirror, an unpinned checkpoint looks like one of
 * a run whose directory was lost, and a pin that stays costs space, while one that goes may cost
 * the checkpoint. Unpin it there as well, with dcp_run_pin() and the mirror's path.
 *
 * A mirror is a run as well: it has `.dcp_run`, the same names, marks and pins, and can be listed,
 * pruned and resumed from. The file `.dcp_mirrored.NAME.DIGITS` in the run says that a checkpoint
 * was copied, of which save, and where to.
 */
#ifndef DCP_RUN_MIRROR_H
#define DCP_RUN_MIRROR_H

#include "progress.h"
#include "run_prune.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dcp_run dcp_run;

/** A place that gets copies. All zero but `size_of` and `path` is the sensible default. */
typedef struct dcp_run_mirror {
    size_t size_of;             /**< sizeof(dcp_run_mirror), so that the struct can grow */
    const char *path;           /**< the directory there: an id of the storage */
    const dcp_storage *storage; /**< NULL: the file system */
    /** Only checkpoints that these rules keep are copied and stay there. NULL: all are copied, and
     * those stay that dcp_run_options::keep keeps. */
    const dcp_run_keep *keep;
    uint64_t bytes_per_second; /**< dcp_copy_options::bytes_per_second; 0: no limit */
    /** How long after a save retention waits for its copy, and dcp_run_close() for copies that are
     * under way; 0: 300. */
    double wait_seconds;
} dcp_run_mirror;

/** How a mirror fares. */
typedef struct dcp_run_mirror_state {
    const char *path; /**< borrowed from the run */
    int64_t step;     /**< newest one that this run knows to be whole there; -1: none */
    uint64_t pending; /**< checkpoints that are to be copied */
    int64_t failures; /**< attempts in a row that failed */
    char why[256];    /**< the last failure; "" if there was none since a copy succeeded */
} dcp_run_mirror_state;

/**
 * Tells how a mirror of an open run fares, at rank 0; at others as if nothing was copied.
 * @param index among dcp_run_options::mirrors. Errors: DCP_ERR_ARGUMENT.
 */
DCP_API dcp_status dcp_run_mirror_status_sized(dcp_run *run, size_t index,
                                               dcp_run_mirror_state *state, size_t state_size);

static inline dcp_status dcp_run_mirror_status(dcp_run *run, size_t index,
                                               dcp_run_mirror_state *state)
{
    return dcp_run_mirror_status_sized(run, index, state, sizeof *state);
}

/** What has become of one checkpoint. */
typedef enum dcp_run_copy_verdict {
    DCP_RUN_COPY_MADE = 0,   /**< it was copied; of a dry run, it would be */
    DCP_RUN_COPY_THERE = 10, /**< it was there */
    DCP_RUN_COPY_LEFT = 20,  /**< it is not to be copied: not whole, or no rule keeps it there */
    DCP_RUN_COPY_FAILED = 30
} dcp_run_copy_verdict;

/** One checkpoint of a run that was to be copied. Texts are valid during the call. */
typedef struct dcp_run_copied {
    const char *name;
    int64_t step;
    dcp_run_copy_verdict verdict;
    dcp_status status;   /**< of one that failed */
    const char *why;     /**< of one that was left or failed; else "" */
    uint64_t bytes;      /**< that were copied */
    uint64_t kept_bytes; /**< of files that were whole there already */
    double seconds;
} dcp_run_copied;

/** Is told of each checkpoint when it is dealt with. */
typedef void (*dcp_run_copied_function)(void *context, const dcp_run_copied *copied);

/** Is told how far the copy of one checkpoint is: see dcp_copy_options::progress. Returns false to
 * end it with DCP_ERR_CANCELLED. */
typedef bool (*dcp_run_copy_progress_function)(void *context, const char *name,
                                               const dcp_progress *progress);

/** How a run is copied. All zero is the sensible default. */
typedef struct dcp_run_copy_options {
    const dcp_storage *source;      /**< where the run is; NULL: in the file system */
    const dcp_storage *destination; /**< where its mirror is; NULL: in the file system */
    const dcp_run_keep
        *keep;            /**< at the end the mirror is pruned by it; NULL: nothing goes there */
    bool only_kept;       /**< only what `keep` keeps is copied */
    const char *identity; /**< of the run; NULL: as its directory says */
    bool dry_run;         /**< nothing is written */
    uint64_t bytes_per_second;
    /** Whether the mirror is known to have a checkpoint, which is then not looked at. Optional. */
    bool (*is_known)(void *context, const char *name);
    void *is_known_context;
    dcp_run_copied_function told; /**< optional */
    void *told_context;
    bool (*stopped)(void *context); /**< ends it with DCP_ERR_CANCELLED; optional */
    void *stopped_context;
    dcp_run_copy_progress_function progress; /**< optional */
    void *progress_context;
} dcp_run_copy_options;

/**
 * Copies the checkpoints of a run that its mirror lacks, the newest first, each as
 * dcp_checkpoint_copy() does it; then pins, and the marks that say which is the latest. What cannot
 * be copied because it is damaged is told, and the others are copied all the same.
 * @param made number of checkpoints that were copied; may be NULL.
 * Errors: DCP_ERR_NOT_FOUND if the directory holds no run of dcp/run.h, DCP_ERR_EXISTS if the
 * mirror is another run's, DCP_ERR_ARGUMENT, DCP_ERR_CANCELLED, and the first failure of a copy.
 */
DCP_API dcp_status dcp_run_copy_sized(const char *path, const char *destination,
                                      const dcp_run_copy_options *options, size_t options_size,
                                      uint64_t *made);

static inline dcp_status dcp_run_copy(const char *path, const char *destination,
                                      const dcp_run_copy_options *options, uint64_t *made)
{
    return dcp_run_copy_sized(path, destination, options, sizeof *options, made);
}

#ifdef __cplusplus
}
#endif

#endif
