/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file save.h
 * @brief Saving a state tree as a checkpoint directory.
 *
 * @section dcp_save_owner One owner at a time
 *
 * While a save lasts, its directory is its own: the coordinator puts a mark there before any rank
 * writes, the small file `.dcp_owner`, which says in plain text which save it is, on which host, of
 * which process, and since when; it goes when the save has ended, however it did. Who begins
 * another save there meanwhile gets #DCP_ERR_BUSY, whose message names the save that is under way;
 * nothing is changed. Readers pass over the mark.
 *
 * A mark that a crash has left is taken over, by exactly one of those who find it:
 *
 * | whose mark it is | taken over |
 * | --- | --- |
 * | a process of this host, which has ended | at once |
 * | a process of this host that runs | never: wait for it, or end it |
 * | a host of this name that was started anew since (outside of containers) | at once |
 * | another host, or another container | `takeover_seconds` after it was made |
 * | not readable, as a power cut may leave it | at once |
 *
 * The age of a mark is what the two hosts' clocks make of it.
 *
 * No checkpoint depends on all this being right. A save that was taken for dead and lives fails
 * with DCP_ERR_BUSY in its commit and harms nothing: it replaces the `.metadata` that was there
 * when it began, and no other, which the storage makes sure of (#DCP_PUBLISH_OVER; files do it
 * by what rename() and O_EXCL guarantee). Files of shards have names of their own in each save;
 * what a save removes after its commit is what earlier saves left that can commit no more. A reader
 * whose checkpoint is replaced while it reads gets DCP_ERR_BUSY as well, and may begin again.
 *
 * Saves *one after the other* in one directory are fine. Processes of one job that should save
 * together and were given no `group` meet in one directory; the message says so, where the launcher
 * tells a process that it is one of several.
 *
 * @section dcp_save_rank_metadata Metadata of each rank
 *
 * With `without_collectives`, every rank saves into the same directory by itself, and its call
 * returns as soon as its own part is durable. Nobody knows when all ranks have saved: that is for
 * the job to find out before it relies on the checkpoint. Loads unite the parts of all ranks, and
 * are DCP_ERR_COVERAGE as long as one is missing that holds what no other does.
 *
 * - Replicas are written by every rank that holds them, as PyTorch does. The lowest rank's is read.
 * - `allow_partial` is implied; `coordinator` and `no_dist` have no meaning. No metadata.json is
 *   written, so that `step` and `info` are ignored.
 * - A custom `storage_writer`, or a chain that has a group, is DCP_ERR_ARGUMENT.
 * - The mark is `.dcp_owner.R`: ranks do not hinder each other, and two processes of the same rank
 *   do. A save of all ranks together and one of a single rank exclude each other (DCP_ERR_BUSY).
 * - Overwriting is about the rank's own part: #DCP_OVERWRITE_REFUSE is DCP_ERR_EXISTS where
 *   `__R.metadata` is, and #DCP_OVERWRITE_REPLACE replaces that file and removes what it named.
 *   Other ranks' files are left alone. While ranks overwrite their parts, what loads is a mixture
 *   of saves, which nobody can detect: a directory of its own for each save is safer.
 * - Where there is a `.metadata`, no rank alone may replace it, and readers would take it before
 *   any `__R.metadata`: that is DCP_ERR_EXISTS, whatever `overwrite` is. A save of all ranks
 *   together replaces the parts of ranks as it does any other checkpoint.
 */
#ifndef DCP_SAVE_H
#define DCP_SAVE_H

#include "environment.h"
#include "figures.h"
#include "group.h"
#include "progress.h"
#include "state.h"
#include "storage_writer.h"
#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Most files that one rank may write side by side. */
#define DCP_MAX_THREADS 256

/** A chain of asynchronous saves, see async.h. */
typedef struct dcp_save_chain dcp_save_chain;

/**
 * What saves of one chain (a training run's, say) keep of their planning, so that the next one of
 * the same structure need not plan again: names, kinds, shapes, dtypes, who holds which chunks, the
 * options that a plan depends on, and the ranks. Whether all that is the same on every rank is
 * found out in one small exchange; if it is not on one, all plan again. Data, directories, and
 * objects of other values do not matter; objects get room to grow by an eighth before they do.
 *
 * Owned by the caller, one on each rank, passed to one save at a time. It holds no pointers into
 * the state. All ranks of a save pass one or none does.
 *
 * With a planner or a storage writer, what is compared is the plan that their hooks make on each
 * rank, with the data that travels with it if there is a hook for all ranks' plans. Hooks are
 * called for each save, but for create_global_plan and prepare_global_plan: these are called when
 * something has changed, and what they made of the plans, of the data that travels with them and of
 * the metadata's planner data is kept.
 */
typedef struct dcp_save_plan_cache dcp_save_plan_cache;

/** @param cache owned by the caller. */
DCP_API dcp_status dcp_save_plan_cache_new(dcp_save_plan_cache **cache);
/** NULL is allowed. */
DCP_API void dcp_save_plan_cache_free(dcp_save_plan_cache *cache);

/** A file of the caller's that belongs to a checkpoint: see dcp_save_options::extra_files. */
typedef struct dcp_extra_file {
    size_t size_of; /**< sizeof(dcp_extra_file), the same in all of an array, so that it can grow */
    /** By which it is asked for: at most 63 bytes of UTF-8, without slashes, backslashes and
     * control characters. Names that checkpoints use themselves are refused: those that begin with
     * "." or "__" or end in ".distcp", ".safetensors" or ".tmp", "metadata.json",
     * "model.safetensors.index.json", and "pp" with a number. */
    const char *name;
    const void *bytes; /**< borrowed for the call, also for an asynchronous save */
    size_t size;
} dcp_extra_file;

/**
 * Options of a save. All zero is the sensible default. Every rank must pass the same values.
 *
 * What PyTorch's DefaultSavePlanner, FileSystemWriter and save() call:
 *
 * | PyTorch | here |
 * | --- | --- |
 * | flatten_state_dict=False | `unflattened` |
 * | flatten_sharded_tensors | always: a tensor is a set of boxes, whatever meshes it is nested in |
 * | dedup_replicated_tensors | always, as PyTorch since 2.4; a planner may write otherwise |
 * | dedup_save_to_lowest_rank=True | #DCP_REPLICAS_LOWEST |
 * | dedup_save_to_lowest_rank=False | #DCP_REPLICAS_WHOLE |
 * | enable_plan_caching | `plan_cache` |
 * | planner, storage_writer | `planner`, `storage_writer` |
 * | process_group | `group`: of all ranks or some; only its ranks call |
 * | coordinator_rank | `coordinator`, in the group |
 * | no_dist=True | `no_dist`, with `allow_partial` for sharded tensors |
 * | use_collectives=False | `without_collectives`; the rank is that of `group`, or `rank` |
 * | single_file_per_rank=False | #DCP_FILE_PER_ITEM |
 * | sync_files=False | `skip_sync` |
 * | thread_count | `thread_count` |
 * | overwrite=True | #DCP_OVERWRITE_REPLACE |
 */
typedef struct dcp_save_options {
    dcp_group *group;    /**< the ranks that save together; NULL: this process alone */
    int32_t coordinator; /**< rank that merges the plans and commits */
    dcp_overwrite overwrite;
    dcp_replicas replicas;
    dcp_file_layout files;
    int32_t thread_count; /**< files per rank, each written by a thread of its own; 0 means 1 */
    bool skip_sync;       /**< do not wait for the disk: faster, and not safe against power loss */
    double timeout_seconds; /**< deadline of each wait for other ranks, and, half of it, of the one
                               for what devices had to do before; 0 means 1800 */

    bool has_step;
    int64_t step; /**< for metadata.json */
    /** The caller's own fields for metadata.json (a dict of JSON-like values), read at the
     * coordinator; borrowed. */
    const dcp_state *info;

    dcp_figures *figures; /**< each rank's own; filled in when the save returns, if not NULL */

    dcp_progress_function progress; /**< called with how far this rank has come; optional */
    void *progress_context;

    uint32_t io; /**< of dcp_io: how shard files are written */

    dcp_compression compression;
    /** Of zstd, up to 22: more is smaller and slower, below 0 is larger and faster; 0: the usual
     * one, 3. Not looked at without compression. */
    int32_t compression_level;
    /** Threads of this rank that compress, small streams side by side and large ones together, at
     * most #DCP_MAX_THREADS; 0: half of the processors, up to 4. Whatever the size of the tensors,
     * each of them takes about 10 MiB at level 3, 100 MiB at level 19 and 800 MiB at level 22. */
    int32_t compression_threads;

    /** Bytes per second that this rank writes to its shard files at most; 0: any number. Mind the
     * other ranks' timeout_seconds. */
    uint64_t write_rate;
    /** Threads that write one file: those of #DCP_IO_POOL, and those that share a large tensor; at
     * most #DCP_MAX_THREADS. 0: a few, as processors are at hand. */
    int32_t io_threads;
    dcp_io_priority io_priority; /**< of writing shard files */

    /** Take part in the planning and the writing; NULL: the library's own ways. Borrowed for the
     * call. */
    const dcp_save_planner *planner;
    const dcp_storage_writer *storage_writer;

    /** Save alone even if a group is given (PyTorch's no_dist): this process is the coordinator,
     * and nobody else is waited for. What the others hold is not saved: a tensor that is sharded
     * over them is DCP_ERR_COVERAGE without `allow_partial`. */
    bool no_dist;
    /** Every value of the root is one entry, whatever is in it (PyTorch's
     * flatten_state_dict=False): a nested dict is stored as one object, tensors in it and all, of
     * which each rank needs memory for a copy. */
    bool unflattened;

    /** What is kept between saves of the same structure; NULL: nothing. */
    dcp_save_plan_cache *plan_cache;

    /** The most that each rank may take of memory at a time, in bytes, beside the state, for plans,
     * metadata, buffers, stacks of threads and, in an asynchronous save, staging memory together;
     * 0: no limit. Within it fewer threads write through smaller buffers, and staging proceeds in
     * waves if there is no room for all of it. If it is too small, nothing is written, and the
     * message of DCP_ERR_NO_MEMORY names the smallest that would do, the same on all ranks; to find
     * that out, the plans are made once more without a limit, for which the hooks of a planner are
     * called once more, but none of a storage writer. What hooks take by themselves is not counted.
     * See dcp_save_estimate(). */
    uint64_t memory_limit;

    /** Without a `storage_writer`: the first of these whose validate_checkpoint_id takes the path
     * for its checkpoint id; every rank must be given the path then. If there is none, the path is
     * a directory, unless it begins with a "scheme://", which is an error (DCP_ERR_UNSUPPORTED). */
    const dcp_storage_writer *const *storage_writers;
    size_t storage_writer_count;

    /** Where the path is (dcp/storage.h); NULL: in the file system. Every rank passes one with the
     * same contents. It goes also for an asynchronous save, until that has ended. */
    const dcp_storage *storage;

    dcp_save_chain *chain; /**< for dcp_save_async() (async.h); ignored elsewhere */

    /** Seconds after which a save on another host, of which nothing can be known from here, is
     * taken for dead; 0 means 1800. Longer than the longest save: the mark keeps the time of its
     * beginning. See @ref dcp_save_owner "one owner at a time". */
    double takeover_seconds;

    /**
     * Compares what several ranks hold in common. Without it each rank writes its slice of what
     * ranks hold, or one of them writes all of it, and the others' bytes are not looked at. It
     * costs one more reading of the compared bytes, by one thread of each rank, and a few exchanges
     * of 16 bytes for each chunk and object of a rank. The coordinator needs about 60 bytes of
     * memory for each chunk and object of each rank. The estimate and `memory_limit` count that;
     * they do not count the message about a difference, which takes at most 35 KiB of each rank,
     * and as much of the coordinator for each rank. With a `memory_limit` the lists are exchanged
     * twice.
     *
     * A difference is DCP_ERR_REPLICA on all ranks, before any shard file is written. The message
     * names up to four tensors or objects, and of each the box, the ranks that agree, the ranks
     * that differ from these (those of the most frequent bytes), and the range of elements, in
     * row-major order of the box, in which all differences are.
     *
     * An asynchronous save compares before dcp_save_async() returns, before anything is copied; a
     * copy that a stager or a save with hooks has made is waited for and compared instead. Where a
     * save with hooks has no place to begin with, it compares before its next attempt. With a
     * planner or a storage writer the plan that its hooks make is compared, and its data as hooks
     * resolve it, for which resolve_data is called once more for each compared tensor; objects are
     * compared as they were encoded for the plan.
     */
    dcp_replica_check check_replicas;
    /** A difference is a warning in the coordinator's log, with the words of the error, and the
     * save goes on. */
    bool allow_different_replicas;
    /** Save what is there if the ranks that save do not hold all of every tensor, which is
     * DCP_ERR_COVERAGE otherwise. Such tensors are stored with their global shape and the chunks
     * that are held; the log names the first missing boxes as a warning, metadata.json counts
     * tensors and elements as "missing", and so do the coordinator's `figures`. The checkpoint
     * loads only together with others that have what it lacks (dcp_load_options::members), whatever
     * the load wants of it; by itself it is DCP_ERR_COVERAGE, and a fault to `dcp verify`.
     * PyTorch loads it without a warning, and leaves elements that are missing as they were. With
     * `no_dist`, each rank can save its part to a directory of its own. */
    bool allow_partial;

    /** Save with no exchange between ranks (PyTorch's use_collectives=False): this process writes
     * what it holds as `__R_N.distcp` and, last, `__R.metadata`, where R is its rank in `group`, or
     * `rank` without one. See @ref dcp_save_rank_metadata "metadata of each rank". */
    bool without_collectives;
    int32_t rank; /**< of `without_collectives` without a `group`; else ignored */

    /**
     * Called once on every rank where the save succeeds, when the checkpoint is committed and
     * before the call returns; in an asynchronous save on the thread that commits, before functions
     * of dcp_future_on_done(). For attempts that fail it is not called, nor with
     * DCP_ERR_UNCONFIRMED. Ranks do not wait for each other's calls. It may read the checkpoint,
     * but must not call what is collective over the group of the save. A failure does not undo the
     * commit and is not returned, because the other ranks do not know of it: it is logged as a
     * warning. NULL: no call.
     * @param path where the checkpoint is, as its storage names it (in the file system an absolute
     * path): that of the fallback, if an asynchronous save has fallen back.
     * @param save_id of this save, as in metadata.json.
     */
    dcp_status (*after_commit)(void *context, const char *path, const char *save_id);
    void *after_commit_context;

    /** Gets the metadata of the checkpoint at the coordinator if the save succeeds, and NULL on
     * other ranks and on failure; NULL: not wanted. Owned by the caller, to be freed with
     * dcp_checkpoint_close(). It is as dcp_checkpoint_decode() gives it: data is not read from it.
     * An asynchronous save sets it before its future is #DCP_FUTURE_DONE, so that the place must
     * last until then; before that it must not be looked at. Not counted in `memory_limit`. */
    dcp_checkpoint **metadata;

    /** What is left of the shard files in the page cache. Ranks may differ. */
    dcp_page_cache page_cache;
    /**
     * Small files of the caller's (a configuration, a tokenizer, the state of each rank's random
     * numbers) that belong to the checkpoint: they are durable before it is committed, replaced and
     * removed with it, and checked by dcp_verify(). A save that is interrupted leaves the files of
     * the checkpoint before as they were: at any moment there are the old ones or the new ones,
     * never a mixture. dcp_checkpoint_find_extra_file() and those beside it read them back.
     *
     * Each rank gives its own; the same name on two ranks is DCP_ERR_DUPLICATE, which names both.
     * Plans that are kept, retries, a fallback path, planners, and saves without_collectives go on
     * as without such files. An asynchronous save copies them when it is called. Memory for that is
     * not counted in `memory_limit`. A storage writer that has no directory cannot take any
     * (DCP_ERR_ARGUMENT).
     *
     * On disk each is a file of its own, "__R.gG.extra.NAME" (of rank R, in generation G of the
     * directory), which `.metadata` names in the field "dcp_extra_files", and metadata.json in
     * "extra_files", with size and XXH3. PyTorch looks at neither. Which generation is the
     * checkpoint's, only these say: after an interrupted save there may be others.
     */
    const dcp_extra_file *extra_files;
    size_t extra_file_count;
} dcp_save_options;

/**
 * Saves @p state as the checkpoint @p path, a directory. Collective over the group. Returns on
 * every rank only when the checkpoint is durable and visible, or with the same failure on every
 * rank; a failed save leaves nothing that looks like a checkpoint, and an earlier checkpoint
 * untouched. The one exception is DCP_ERR_UNCONFIRMED: all ranks had written, the checkpoint is
 * committed, or may be, and some rank has stopped before it could say that it knows. A disk that
 * has no room for it, beside what is there, is DCP_ERR_NO_SPACE before anything is written, unless
 * it is compressed: then its size is not known before.
 *
 * @param path the checkpoint's directory; created with its parents. NULL or "" on some ranks:
 * inferred, all ranks take the coordinator's, like PyTorch's checkpoint_id. A relative path begins
 * at the coordinator's working directory, as it is during the call. The directory is opened once:
 * the save is in that one, also if it is renamed meanwhile, or another one takes its place.
 * @param options NULL: all defaults.
 * Errors: DCP_ERR_EXISTS, DCP_ERR_BUSY (another save owns the directory), DCP_ERR_COVERAGE,
 * DCP_ERR_OVERLAP, DCP_ERR_SHAPE, DCP_ERR_DTYPE, DCP_ERR_DUPLICATE, DCP_ERR_REPLICA
 * (dcp_save_options::check_replicas), DCP_ERR_UNSUPPORTED (compression that the library was built
 * without), DCP_ERR_IO, DCP_ERR_NO_SPACE, DCP_ERR_TIMEOUT, DCP_ERR_UNCONFIRMED, DCP_ERR_CANCELLED,
 * any that a stateful callback returns, and others.
 */
DCP_API dcp_status dcp_save_sized(dcp_state *state, const char *path,
                                  const dcp_save_options *options, size_t options_size);

static inline dcp_status dcp_save(dcp_state *state, const char *path,
                                  const dcp_save_options *options)
{
    return dcp_save_sized(state, path, options, sizeof *options);
}

#ifdef __cplusplus
}
#endif

#endif
