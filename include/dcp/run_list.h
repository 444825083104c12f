/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file run_list.h
 * @brief Finding checkpoints: which checkpoints a training job's directory holds, and which is the
 * last good one.
 *
 * A *run* is a directory in which a training job keeps its checkpoints, one for each step that it
 * has saved. Frameworks name and mark them differently. Known are those of torchtitan,
 * KempnerForge, Megatron-LM and Bridge, NeMo, NeMo AutoModel, Lightning, TorchTNT, Transformers,
 * Accelerate, Composer, DeepSpeed, OLMo-core, MegaCpp, Orbax, nanochat and litgpt, and `step_N`
 * without anything else. Runs of dcp/run.h have a file `.dcp_run`, which says how their checkpoints
 * are named.
 *
 * A name is no proof that a checkpoint is whole, and neither is a mark that a framework leaves
 * ("latest", a tracker): saves and removals are interrupted. So each checkpoint is checked, without
 * reading its data:
 * - of a DCP directory, `.metadata` can be read, and every file that it names is there with at
 *   least the length that it needs; if the save was this library's, with the footer of that save;
 * - everything else that its framework needs to resume is there; JSON is parsed, and
 *   files of torch.save have the end that their zip archive must have. No pickle is executed;
 * - files of single ranks are there for as many ranks as wrote shards; if the number of these is
 *   not known, for as many as in the checkpoints next to it.
 *
 * dcp_verify() checks the data as well.
 *
 * Checkpoints are ordered by the steps, epochs and versions in their names, not by file times.
 */
#ifndef DCP_RUN_LIST_H
#define DCP_RUN_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "storage.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- finding ---- */

/** What a checkpoint of a run is made of. */
typedef enum dcp_run_kind {
    DCP_RUN_DCP = 0,              /**< "dcp": a DCP directory, perhaps with files beside it */
    DCP_RUN_DCP_STAGES = 10,      /**< "dcp-stages": DCP directories `pp0`, `pp1` ..., a union */
    DCP_RUN_DCP_PART = 11,        /**< "dcp-part": one replica's data loader; no checkpoint alone */
    DCP_RUN_MCORE = 20,           /**< "mcore": Megatron Core: DCP and its metadata.json */
    DCP_RUN_HF_FSDP = 21,         /**< "hf-fsdp": DCP directories of model and optimizer */
    DCP_RUN_AUTOMODEL = 22,       /**< "automodel": safetensors and a DCP directory */
    DCP_RUN_MEGATRON_LEGACY = 30, /**< "megatron-legacy": files of torch.save for each rank;
                                       loaded if there is one */
    DCP_RUN_PT = 31,              /**< "pt": one file of torch.save */
    DCP_RUN_PT_SET = 32,          /**< "pt-set": several of them, or safetensors, as one */
    DCP_RUN_DEEPSPEED = 33,       /**< "deepspeed": its files for each rank */
    DCP_RUN_ORBAX = 40,           /**< "orbax": recognized, not loaded */
    DCP_RUN_EMERGENCY = 50,       /**< "emergency": dumped by one node; never taken unasked */
    DCP_RUN_LINK = 60             /**< "link": another name of a checkpoint */
} dcp_run_kind;

/** @return the name in quotes above; "unknown" for other values. Static. */
DCP_API const char *dcp_run_kind_name(dcp_run_kind kind);

/** How a run is looked at. All zero is the default. */
typedef struct dcp_run_list_options {
    /**
     * Where the run is (dcp/storage.h); NULL: in the file system. Subdirectories must be in what
     * the storage lists. The table has neither links nor times: links among marks are read in the
     * file system alone, and dcp_run_checkpoint::unix_time is otherwise known only if the save has
     * recorded it. Of a storage that is `far`, Orbax's checkpoints need their success file.
     */
    const dcp_storage *storage;
    /** Checks only what is needed to find the latest one: from the newest back to the first that is
     * whole. For the others dcp_run_checkpoint::checked is false. */
    bool latest_only;
    /** A number of dcp_run_note(), or among dcp_run_options::info, by which one checkpoint is the
     * best; NULL: none is. */
    const char *metric;
    bool higher_is_better;
} dcp_run_list_options;

/** The checkpoints of a run, oldest first, those without a step before all others. Threading: any
 * number of threads may look at the same time. */
typedef struct dcp_run_list dcp_run_list;

/** One checkpoint. Pointers are borrowed from the list. */
typedef struct dcp_run_checkpoint {
    const char *path;      /**< relative to the run: "checkpoint/step-10" */
    const char *framework; /**< whose layout it has: "torchtitan" */
    dcp_run_kind kind;
    bool has_step;     /**< else `step` is 0: "last.ckpt", "final" */
    bool checked;      /**< else `complete`, `why` and `bytes` are not known */
    bool complete;     /**< everything that resuming from it needs is there */
    bool latest;       /**< the newest complete one; of at most one in a list */
    bool marked;       /**< the framework's own mark names it */
    int64_t step;      /**< steps done; a count of saves in Accelerate */
    const char *why;   /**< why it is not complete; "" if it is */
    uint64_t bytes;    /**< of the files that were looked at: shards, metadata, needed side files */
    int64_t unix_time; /**< when it was saved, in seconds, as the save has recorded it, or else the
                          file's time; 0: unknown. Not reliable */
    bool pinned;       /**< dcp_run_pin() */
    bool best;         /**< by dcp_run_list_options::metric; of at most one in a list */
    uint32_t mirrored; /**< mirrors that this save was copied to, as notes in the run say */
} dcp_run_checkpoint;

/** A mark that a framework left to say which checkpoint is its latest. Pointers are borrowed from
 * the list. */
typedef struct dcp_run_mark {
    const char *path;  /**< of the mark, relative to the run: "latest" */
    const char *text;  /**< what it says: a name, a number, a path; "" if it cannot be read */
    bool found;        /**< it names a checkpoint of the list */
    size_t checkpoint; /**< which one */
} dcp_run_mark;

/**
 * Finds the checkpoints of a run and checks them.
 *
 * The path is the directory that holds the steps, or the one above it. Where the path's own names
 * are no steps, each subdirectory is looked at; "checkpoint" and "checkpoints" count before others.
 * Names that no framework uses are left out: other files, temporary
 * directories, data loaders' states, step numbers that do not fit in 63 bits.
 *
 * @param options NULL: all defaults.
 * @param list owned by the caller: dcp_run_list_free(). It may be empty.
 * Errors: DCP_ERR_NOT_FOUND, DCP_ERR_KIND for a file, DCP_ERR_NO_MEMORY, DCP_ERR_FILE_LIMIT and
 * the storage's when it cannot list. A checkpoint that cannot be read is not complete; it is not a
 * failure of the call.
 */
DCP_API dcp_status dcp_run_list_read_sized(const char *path, const dcp_run_list_options *options,
                                           size_t options_size, dcp_run_list **list);

static inline dcp_status dcp_run_list_read(const char *path, const dcp_run_list_options *options,
                                           dcp_run_list **list)
{
    return dcp_run_list_read_sized(path, options, sizeof *options, list);
}

/** NULL is allowed. */
DCP_API void dcp_run_list_free(dcp_run_list *list);

/** @return number of checkpoints. */
DCP_API size_t dcp_run_list_count(const dcp_run_list *list);

/** Describes a checkpoint. Errors: DCP_ERR_ARGUMENT. */
DCP_API dcp_status dcp_run_list_checkpoint_sized(const dcp_run_list *list, size_t index,
                                                 dcp_run_checkpoint *checkpoint,
                                                 size_t checkpoint_size);

static inline dcp_status dcp_run_list_checkpoint(const dcp_run_list *list, size_t index,
                                                 dcp_run_checkpoint *checkpoint)
{
    return dcp_run_list_checkpoint_sized(list, index, checkpoint, sizeof *checkpoint);
}

/** @return number of marks. */
DCP_API size_t dcp_run_list_mark_count(const dcp_run_list *list);

/** Describes a mark. Errors: DCP_ERR_ARGUMENT. */
DCP_API dcp_status dcp_run_list_mark_sized(const dcp_run_list *list, size_t index,
                                           dcp_run_mark *mark, size_t mark_size);

static inline dcp_status dcp_run_list_mark(const dcp_run_list *list, size_t index,
                                           dcp_run_mark *mark)
{
    return dcp_run_list_mark_sized(list, index, mark, sizeof *mark);
}

/**
 * Gives the latest checkpoint: the newest that is complete, whatever marks say. Emergency dumps,
 * links, parts and results without a step ("final") are not among those to choose from.
 * Errors: DCP_ERR_NOT_FOUND: there is none. DCP_ERR_DUPLICATE: two of one step ("step_20" and
 * "step_00000020") would be it, or several subdirectories hold runs.
 */
DCP_API dcp_status dcp_run_list_latest(const dcp_run_list *list, size_t *index);

/** @return one line: which checkpoint is the latest, why newer ones are not, and what marks say of
 * it; or why there is none. Borrowed from the list. */
DCP_API const char *dcp_run_list_reason(const dcp_run_list *list);

#ifdef __cplusplus
}
#endif

#endif
