/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file run.h
 * @brief A training run: saving when it is due, resuming from the last good checkpoint, keeping
 * some.
 *
 * @code
 * dcp_run_options options = {.group = group, .state = state, .every_steps = 1000, .last_step = n,
 *                            .keep = &(dcp_run_keep){sizeof(dcp_run_keep), .last = 3}};
 * dcp_run_open("checkpoints", &options, &run);
 * dcp_run_resume(run, &resumed);
 * for (step = resumed.step; step < n && !dcp_run_should_stop(run);) {
 *     train();
 *     dcp_run_step(run, ++step);
 * }
 * dcp_run_close(run);
 * @endcode
 *
 * A run is a directory with a checkpoint for each saved step: `step_N`, or a name of another
 * pattern. Each holds the state, metadata.json (step, time, ranks, and under "info" the run's
 * identity, its numbers and the caller's own fields) and extra files. When a save is durable, the
 * mark `latest` moves to it: a symbolic link, or, in storages other than the file system, an object
 * that holds its name. Figures of each save become a line of `dcp_saves.jsonl`.
 *
 * @section dcp_run_identity Identity
 *
 * The file `.dcp_run` in the directory holds the run's identity, and so does each checkpoint.
 * Checkpoints of another run are neither resumed from unasked, nor replaced, nor removed; the log
 * names them. Two jobs that share a directory give different identities. A job that gives none
 * continues the run that the directory holds.
 *
 * @section dcp_run_ranks Ranks
 *
 * All ranks open the run together, and call dcp_run_step(), dcp_run_should_save(),
 * dcp_run_should_stop(), dcp_run_wait_staged(), dcp_run_save(), dcp_run_resume() and
 * dcp_run_close() in the same order. They answer the same on every rank. Rank 0 reads the clock and
 * looks at files. If anything but the step's number decides, ranks exchange eight bytes: at most
 * once in each step. If steps are short, they do so about once a second, or four times a second
 * while a save is under way, but at least at every 16th call.
 *
 * @section dcp_run_bridge Megatron Bridge's options
 *
 * | Bridge | here |
 * | --- | --- |
 * | save, load | the path; `reference` |
 * | save_interval | `every_steps` |
 * | most_recent_k | dcp_run_keep::last |
 * | save_retain_interval | dcp_run_keep::every_steps |
 * | async_save | `mode` |
 * | ckpt_step | `reference` = "1000" |
 * | exit_on_missing_checkpoint | `if_missing` = #DCP_RUN_MISSING_FAIL |
 * | pretrained_checkpoint, finetune | `pretrained` |
 * | load_optim, load_rng, load_main_params | `skip_optimizer`, `skip_rng`, `skip_main_params` |
 * | save_optim, save_rng | what is in `state`, and what `before_save` adds |
 * | dist_ckpt_strictness | dcp_load_options::strictness in `load` |
 * | fully_parallel_save | always; fully_parallel_load: dcp_load_options::reading |
 * | ckpt_assume_constant_structure | always tried: plans are kept, and compared |
 * | non_persistent_save_interval, non_persistent_global_ckpt_dir | a second run, of that path |
 * | non_persistent_ckpt_type "local", non_persistent_local_* | `emergency`, on a disk of the node |
 */
#ifndef DCP_RUN_H
#define DCP_RUN_H

#include "async.h"
#include "load.h"
#include "run_list.h"
#include "run_mirror.h"
#include "run_prune.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A training run. For one thread at a time on each rank. */
typedef struct dcp_run dcp_run;

/** How it saves. */
typedef enum dcp_run_mode {
    DCP_RUN_ASYNC = 0,             /**< behind training, from a copy (#DCP_STAGING_BLOCKING) */
    DCP_RUN_ASYNC_PINNED = 10,     /**< from a copy in page-locked memory */
    DCP_RUN_ASYNC_OVERLAPPED = 20, /**< copied behind training too, see dcp_run_wait_staged() */
    DCP_RUN_BLOCKING = 30          /**< training waits */
} dcp_run_mode;

/** Whose names and files a run has, so that the framework resumes from it. */
typedef enum dcp_run_layout {
    DCP_RUN_LAYOUT_DCP = 0, /**< `step_N`, `latest` */
    /** `step_N` with train_state.pt (step, tokens_seen and all numbers of dcp_run_note()), and the
     * link `latest`. The state's keys are the caller's: "model", "optimizer". */
    DCP_RUN_LAYOUT_KEMPNERFORGE = 10,
    /** `iter_000000N` with metadata.json of Megatron Core, train_state.pt (its numbers are those of
     * dcp_run_note(), otherwise 0), run_config.yaml if an extra file has that name, and both
     * trackers. */
    DCP_RUN_LAYOUT_BRIDGE = 20
} dcp_run_layout;

/** What a resume does when there is nothing to resume from. */
typedef enum dcp_run_missing {
    DCP_RUN_MISSING_FRESH = 0, /**< training begins, from `pretrained` if there is one */
    DCP_RUN_MISSING_FAIL = 10  /**< DCP_ERR_NOT_FOUND */
} dcp_run_missing;

/** Called on each rank before a save begins, for dcp_run_add_file() and dcp_run_note(). If it
 * fails, the save fails on all ranks. */
typedef dcp_status (*dcp_run_before_save)(void *context, dcp_run *run, int64_t step);

/** Where each rank saves what it holds when there is no time left, or no other rank to wait for:
 * see dcp_run_emergency_save(). */
typedef struct dcp_run_emergency {
    size_t size_of; /**< sizeof(dcp_run_emergency), so that the struct can grow */
    const char
        *path; /**< a directory that is fast, such as on a disk of the node; made if need be */
    /** Where it is saved as well, once it is durable there: a place that outlives the node, and
     * that all ranks see. It is in dcp_run_options::storage. NULL: nowhere. */
    const char *copy_path;
} dcp_run_emergency;

/**
 * How a run is kept. All zero is the sensible default, but for `state`. What pointers refer to is
 * borrowed until dcp_run_close(). Every rank passes the same values. If ranks differ in when to
 * save or stop, or in how to resume, rank 0's values count.
 */
typedef struct dcp_run_options {
    dcp_group *group;           /**< NULL: this process alone */
    const dcp_storage *storage; /**< where the path is; NULL: in the file system */
    dcp_state *state;           /**< what is saved and loaded; the same tree each time */
    /** Names of checkpoints: letters, digits, ".", "_" and "-" around one "{N}" for the step, or
     * "{N:06d}" for at least six digits. NULL: that of the layout. torchtitan resumes from
     * "step-{N}" in a folder "checkpoint", if the state has its keys. */
    const char *pattern;
    dcp_run_layout layout;
    /** Of the run: 1 to 63 letters, digits, ".", "_" and "-". NULL: that of the directory, or a
     * random one. */
    const char *identity;
    /** A new run, whatever the directory holds: without `identity` it gets a new one, and
     * dcp_run_resume() takes nothing of it unasked. */
    bool fresh;

    dcp_run_mode mode;
    /** Further options of saves: compression, limits and so on. Group, chain, storage, overwrite,
     * step, info, extra files, figures, metadata and plan_cache are the run's. */
    const dcp_save_options *save;
    const dcp_save_chain_options
        *chain;                   /**< further options of asynchronous saves; no fallback_path */
    const dcp_load_options *load; /**< further options of loads */
    const dcp_state *info; /**< a dict: own fields for metadata.json, beside "run" and numbers */
    const dcp_extra_file *files; /**< for every checkpoint; each rank its own */
    size_t file_count;
    dcp_run_before_save before_save; /**< optional */
    void *before_save_context;

    /** Saves when the step is a multiple; 0: this is not looked at. If any of the three that follow
     * wants a save, it is due. */
    int64_t every_steps;
    double every_seconds; /**< since the last save began; 0: not looked at */
    /** Mean time between failures of the job: saves at the interval of Young and Daly for it and
     * for what saves have cost so far, the first one at the first step; 0: not looked at. */
    double failure_seconds;
    /** The most that saves may cost, in percent of the time, as measured: a save that would come
     * too early is postponed. If this is the only rule, saves are as frequent as it allows. 0: no
     * limit. */
    double overhead_percent;
    int64_t last_step; /**< is saved, and each after it; 0: unknown */
    /** Saves in a row that may fail: these failures are only logged. Then one is returned. */
    int32_t allowed_failures;

    /** Installs handlers of SIGTERM and SIGUSR1 until the run is closed, that set a flag. */
    bool stop_on_signals;
    const char *halt_file;     /**< in the file system: stops if it is there, as rank 0 sees it */
    int64_t stop_at_unix_time; /**< end of the allocation, such as SLURM_JOB_END_TIME; 0: none */
    /** Stops this long before that time, plus one and a half times the longest save so far; 0: 30.
     */
    double stop_margin_seconds;

    /** What dcp_run_resume() takes: NULL or "latest", "best" (by dcp_run_keep::metric), a step's
     * number, the name of a checkpoint of the run, or the path of a checkpoint, its `.metadata`,
     * a `.pt` file, or another run. For all but the first two, nothing else is taken instead. */
    const char *reference;
    const char
        *require_kind; /**< "dcp": another kind (dcp_run_kind_name()) is refused; NULL: any */
    dcp_run_missing if_missing;
    const char *pretrained; /**< a checkpoint whose model is loaded when there is none to resume */
    bool skip_optimizer;    /**< what is below its key is not loaded */
    bool skip_rng;          /**< likewise */
    bool skip_main_params;  /**< likewise: fp32 masters */
    /** A checkpoint without an optimizer is resumed from, with a warning. Otherwise it counts as
     * model only: it is skipped with a warning, and refused if `reference` names it. Likewise for
     * each of up to 16 optimizers below the key (elements of a list, or dicts in a dict), of which
     * the checkpoint has some: without this their names are missing, which ends the resume. */
    bool allow_missing_optimizer;
    const char *model_key;       /**< at the top of the state; NULL: "model" */
    const char *optimizer_key;   /**< NULL: "optimizer" */
    const char *rng_key;         /**< NULL: "rng" */
    const char *main_params_key; /**< NULL: "main_params" */
    /** How long to wait until all ranks see a checkpoint that rank 0 has seen, as on NFS; 0: 60. */
    double visible_seconds;

    /** Which checkpoints stay; NULL: all. A save that finds no space waits for a removal that is
     * under way, at most 10 minutes, and tries again: from its copy, behind training, unless
     * `memory_limit` or a staging limit leaves no room for a whole one. */
    const dcp_run_keep *keep;
    const char *figures_file; /**< of figures; NULL: dcp_saves.jsonl in the run, if that is in the
                                   file system */

    /** Places that get a copy of each checkpoint, and give it back (dcp/run_mirror.h). */
    const dcp_run_mirror *mirrors;
    size_t mirror_count;
    const dcp_run_emergency *emergency; /**< NULL: there are no emergency saves */
    double timeout_seconds; /**< deadline of each wait for other ranks: the run's own waits, and
                               those of `save`, `chain` and `load` if they say none; 0: 1800 */
} dcp_run_options;

/** What a run was resumed from. Texts are borrowed from the run. */
typedef struct dcp_run_resumed {
    bool found;      /**< else training begins at step 0 */
    bool model_only; /**< of `pretrained`: `step` is 0 */
    int64_t step;    /**< steps done */
    dcp_run_kind kind;
    const char *path;   /**< "" if nothing was found */
    const char *reason; /**< the line that was logged: which source won, and why others did not */
} dcp_run_resumed;

/**
 * Opens a run, and makes its directory. Collective.
 * @param run owned by the caller: dcp_run_close().
 * Errors: DCP_ERR_ARGUMENT, DCP_ERR_NO_MEMORY, those of the group and the storage.
 */
DCP_API dcp_status dcp_run_open_sized(const char *path, const dcp_run_options *options,
                                      size_t options_size, size_t save_size, size_t chain_size,
                                      size_t load_size, dcp_run **run);

static inline dcp_status dcp_run_open(const char *path, const dcp_run_options *options,
                                      dcp_run **run)
{
    return dcp_run_open_sized(path, options, sizeof *options, sizeof(dcp_save_options),
                              sizeof(dcp_save_chain_options), sizeof(dcp_load_options), run);
}

/** @return the run's identity; borrowed from it. */
DCP_API const char *dcp_run_identity(const dcp_run *run);

/**
 * Loads the state from the newest checkpoint of this run that is whole, or from what the options
 * name. Collective. A checkpoint whose data turns out to be damaged is remembered in the run's
 * directory, and an older one is taken, now and next time, until that step is saved again. A state
 * that does not fit the checkpoint is no such damage, and ends the resume.
 *
 * Marks are hints: what counts is what is there and whole. Checkpoints that another library has
 * left in the directory are taken as well, if no identity was given.
 *
 * Whole checkpoints that are later than the one that dcp_run_options::reference names stay, and the
 * log says so. Saving the same step replaces them; until then, the next resume without a reference
 * takes them.
 * @param resumed may be NULL.
 * Errors: DCP_ERR_NOT_FOUND (#DCP_RUN_MISSING_FAIL, or the reference), DCP_ERR_KIND (the required
 * kind or class), and those of dcp_load().
 */
DCP_API dcp_status dcp_run_resume_sized(dcp_run *run, dcp_run_resumed *resumed,
                                        size_t resumed_size);

static inline dcp_status dcp_run_resume(dcp_run *run, dcp_run_resumed *resumed)
{
    return dcp_run_resume_sized(run, resumed, sizeof *resumed);
}

/**
 * Reads an extra file of the checkpoint that was resumed from, such as this rank's random numbers.
 * Not collective.
 * @param bytes owned by the caller: dcp_memory_free(). @param size in bytes.
 * Errors: DCP_ERR_NOT_FOUND, also after a fresh start, and those of
 * dcp_checkpoint_read_extra_file().
 */
DCP_API dcp_status dcp_run_read_file(dcp_run *run, const char *name, void **bytes, size_t *size);

/**
 * To be called once after each step. Saves if a save is due. Collective, as described at the top of
 * this page.
 * @param step steps done.
 * @return the result of the save that was begun, and of the asynchronous save before it, if that is
 * known by now: a failure of either, unless `allowed_failures` covers it. The run can be used after
 * failures, and saves again when that is due.
 */
DCP_API dcp_status dcp_run_step(dcp_run *run, int64_t step);

/**
 * Whether dcp_run_step() of this step will save: to gather beforehand what is to go into it. The
 * same on every rank, and no exchange beyond the one that the step would have; collective as that.
 * If it is time to stop, the answer is true until that save.
 */
DCP_API bool dcp_run_should_save(dcp_run *run, int64_t step);

/**
 * Whether training is to end: because of a signal, the halt file, or the end of the allocation.
 * Also for loops between steps (evaluation, warm-up). When it is time, the next dcp_run_step(), or
 * else dcp_run_close(), saves, so that the state must then still be that of the last step.
 */
DCP_API bool dcp_run_should_stop(dcp_run *run);

/** @return why training is to end, "" if it is not; static. */
DCP_API const char *dcp_run_stop_reason(const dcp_run *run);

/** Waits until tensors may change, with #DCP_RUN_ASYNC_OVERLAPPED: right before the optimizer's
 * step. Otherwise returns at once. dcp_run_step() returns the result of the save. */
DCP_API void dcp_run_wait_staged(dcp_run *run);

/** Saves now, whatever is due; waits for the save before it. A step that was saved is not saved
 * again. Returns as dcp_run_step() does. Collective. */
DCP_API dcp_status dcp_run_save(dcp_run *run, int64_t step);

/**
 * Saves at once what this rank holds, without any exchange between ranks, so that it may be called
 * when others are gone. The state must be that of the last step that was passed to dcp_run_step().
 * Returns when it is durable in dcp_run_emergency::path; the result of the copy is only logged.
 *
 * With dcp_run_options::stop_on_signals the run calls it: in the first two steps after a signal,
 * and in the step in which all ranks stop, so that at least one of these steps is the same on all
 * ranks, even if they are one step apart. The usual save follows if ranks still agree.
 *
 * Each rank's part goes into PATH/IDENTITY/emergency_step_N_M, where M is a number of this job, so
 * that parts of two jobs never mix. dcp_run_resume() takes the newest of them whose parts are the
 * whole state together, if it is newer than what the run has; of the others it says which boxes are
 * missing, and skips them. It must see all parts: in `path` if all ranks ran on its node, else in
 * `copy_path`. Emergency saves are removed when a usual save of the same or a later step has been
 * committed.
 *
 * Not collective. Errors: DCP_ERR_STATE (no step yet, or no dcp_run_emergency), and those of
 * dcp_save().
 */
DCP_API dcp_status dcp_run_emergency_save(dcp_run *run);

/** Waits for the save that is under way, and returns its result. Collective. */
DCP_API dcp_status dcp_run_flush(dcp_run *run);

/** @return the last step whose checkpoint is durable, as far as this rank knows; -1: none. */
DCP_API int64_t dcp_run_saved_step(const dcp_run *run);

/** Sets a number that goes into the info of saves from now on, such as a loss; at rank 0. Errors:
 * DCP_ERR_ARGUMENT (the name "run", or more than 64 of them), DCP_ERR_NO_MEMORY. */
DCP_API dcp_status dcp_run_note(dcp_run *run, const char *name, double value);

/** Adds an extra file of this rank to the next save, copied. Errors: DCP_ERR_ARGUMENT,
 * DCP_ERR_NO_MEMORY. */
DCP_API dcp_status dcp_run_add_file(dcp_run *run, const char *name, const void *bytes, size_t size);

/** Flushes as dcp_run_flush(), saves the last step if it was time to stop, ends the work in the
 * background, and frees the run. Checkpoints that no rule keeps are gone then, unless it was time
 * to stop or removing them takes longer than 10 s: a later save removes them. Collective. NULL is
 * allowed. */
DCP_API dcp_status dcp_run_close(dcp_run *run);

#ifdef __cplusplus
}
#endif

#endif
