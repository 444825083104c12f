/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file save.h
 * @brief Saving a state tree as a checkpoint directory.
 *
 * @section dcp_save_owner One owner at a time
 *
 * A save owns its directory while it lasts. Before any rank writes, the coordinator puts a mark
 * there: the small file `.dcp_owner`, which names in plain text the save, its host, its process and
 * the time of its beginning. The mark is removed when the save ends, also when it fails. Another
 * save that begins there meanwhile gets #DCP_ERR_BUSY and changes nothing; the message names the
 * save that is under way. Readers ignore the mark.
 *
 * A mark that a crash has left is taken over by exactly one of the saves that find it:
 *
 * | whose mark it is | taken over |
 * | --- | --- |
 * | a process of this host, which has ended | at once |
 * | a process of this host that runs | never: wait for it, or end it |
 * | a host of this name that was started anew since (outside of containers) | at once |
 * | another host, or another container | `takeover_seconds` after it was made |
 * | not readable, as a power cut may leave it | at once |
 *
 * The age of a mark is computed from the clocks of both hosts, which may differ.
 *
 * No checkpoint depends on the mark. If a save was taken for dead but is alive, its commit fails
 * with DCP_ERR_BUSY and damages nothing: a commit replaces only the `.metadata` that was there when
 * the save began. The storage guarantees that (#DCP_PUBLISH_OVER; for files by rename() and
 * O_EXCL). Shard files have different names in each save. After its commit a save removes only
 * files of earlier saves that can no longer commit. A reader whose checkpoint is replaced while it
 * reads gets DCP_ERR_BUSY too, and can begin again.
 *
 * Saves *one after the other* in one directory are fine. If processes of one job were given no
 * `group`, each tries to save the whole by itself, and they meet in one directory. If the launcher
 * has set variables that indicate several processes, the message says so.
 *
 * @section dcp_save_rank_metadata Metadata of each rank
 *
 * With `without_collectives`, every rank saves into the same directory by itself, and its call
 * returns as soon as its own part is durable. The library does not know when all ranks have saved:
 * the job must find that out before it relies on the checkpoint. Loads unite the parts of all
 * ranks. They fail with DCP_ERR_COVERAGE while a part with chunks that no other rank has is
 * missing.
 *
 * - Replicas are written by every rank that holds them, as PyTorch does. The lowest rank's is read.
 * - `allow_partial` is implied; `coordinator` and `no_dist` have no meaning. No metadata.json is
 *   written, so that `step` and `info` are ignored.
 * - A custom `storage_writer`, or a chain that has a group, is DCP_ERR_ARGUMENT.
 * - The mark is `.dcp_owner.R`: different ranks do not exclude each other, two processes of the
 *   same rank do. A save of all ranks together and one of a single rank exclude each other: one of
 *   them is DCP_ERR_BUSY.
 * - Overwriting is about the rank's own part: #DCP_OVERWRITE_REFUSE is DCP_ERR_EXISTS if there is
 *   a `__R.metadata`, and #DCP_OVERWRITE_REPLACE replaces it and removes the files that it named.
 *   Other ranks' files are left alone. While ranks overwrite their parts, a load gets a mixture of
 *   saves, which cannot be detected. One directory for each save is safer.
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
 * Keeps the plan of a save, so that the next save of the same structure need not plan again. The
 * structure is: names, kinds, shapes, dtypes, which rank holds which chunks, the options that a
 * plan depends on, and the ranks. One small exchange shows whether it is the same on every rank; if
 * it differs on one, all ranks plan again. Data, directories and the values of objects may differ.
 * The plan leaves objects room to grow by an eighth; when one outgrows it, all plan again.
 *
 * Owned by the caller, one on each rank, passed to one save at a time. It holds no pointers into
 * the state. All ranks of a save pass one or none does.
 *
 * With a planner or a storage writer, the plans that the hooks make on each rank are compared, with
 * their planner data if there is a hook for all ranks' plans. Hooks are called for each save,
 * except create_global_plan and prepare_global_plan: those are called only when something has
 * changed, and their results are kept.
 */
typedef struct dcp_save_plan_cache dcp_save_plan_cache;

/** @param cache owned by the caller. */
DCP_API dcp_status dcp_save_plan_cache_new(dcp_save_plan_cache **cache);
/** NULL is allowed. */
DCP_API void dcp_save_plan_cache_free(dcp_save_plan_cache *cache);

/** An extra file that belongs to a checkpoint: see dcp_save_options::extra_files. */
typedef struct dcp_extra_file {
    size_t size_of; /**< sizeof(dcp_extra_file), the same in all of an array, so that it can grow */
    /** Its name in the checkpoint: at most 63 bytes of UTF-8, without slashes, backslashes and
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
    double timeout_seconds; /**< deadline of each wait for other ranks; half of it is the deadline
                               for earlier work of devices; 0 means 1800 */

    bool has_step;
    int64_t step; /**< for metadata.json */
    /** Fields of the caller for metadata.json (a dict of JSON-like values), read at the
     * coordinator; borrowed. */
    const dcp_state *info;

    dcp_figures *figures; /**< each rank's own; filled in when the save returns, if not NULL */

    dcp_progress_function progress; /**< called with how far this rank has come; optional */
    void *progress_context;

    uint32_t io; /**< of dcp_io: how shard files are written */

    dcp_compression compression;
    /** Of zstd, up to 22: higher is smaller and slower, below 0 is larger and faster; 0 means 3.
     * Ignored without compression. */
    int32_t compression_level;
    /** Threads of this rank that compress, small streams side by side and large ones together, at
     * most #DCP_MAX_THREADS; 0: half of the processors, up to 4. Whatever the size of the tensors,
     * each of them takes about 10 MiB at level 3, 100 MiB at level 19 and 800 MiB at level 22. */
    int32_t compression_threads;

    /** The most bytes per second that this rank writes to its shard files; 0: no limit. The other
     * ranks wait for it, at most their timeout_seconds. */
    uint64_t write_rate;
    /** Threads that write one file: those of #DCP_IO_POOL, and those that share a large tensor; at
     * most #DCP_MAX_THREADS. 0: a few, depending on the number of processors. */
    int32_t io_threads;
    dcp_io_priority io_priority; /**< of writing shard files */

    /** Hooks into planning and writing; NULL: the library plans and writes. Borrowed for the
     * call. */
    const dcp_save_planner *planner;
    const dcp_storage_writer *storage_writer;

    /** Save alone even if a group is given (PyTorch's no_dist): this process is the coordinator,
     * and waits for no other rank. Chunks of other ranks are not saved: a tensor that is sharded
     * over them is DCP_ERR_COVERAGE without `allow_partial`. */
    bool no_dist;
    /** Every value of the root is one entry, whatever is in it (PyTorch's
     * flatten_state_dict=False): a nested dict is stored as one object, tensors in it and all, of
     * which each rank needs memory for a copy. */
    bool unflattened;

    /** What is kept between saves of the same structure; NULL: nothing. */
    dcp_save_plan_cache *plan_cache;

    /** The most memory that each rank may take at a time, in bytes; 0: no limit. It covers plans,
     * metadata, buffers, stacks of threads and, in an asynchronous save, staging memory and, with
     * hooks, copies of tensors in objects, but not the state. To stay within it, fewer threads
     * write through smaller buffers, and staging is done in waves.
     *
     * If the limit is too small, nothing is written. The message of DCP_ERR_NO_MEMORY names the
     * smallest sufficient limit, the same on all ranks. To find it, the plans are made again
     * without a limit: the hooks of a planner are called once more, those of a storage writer are
     * not. Memory that hooks allocate is not counted. See dcp_save_estimate(). */
    uint64_t memory_limit;

    /** Without a `storage_writer`: the first of these whose validate_checkpoint_id takes the path
     * for its checkpoint id; every rank must be given the path then. If there is none, the path is
     * a directory, unless it begins with a "scheme://", which is an error (DCP_ERR_UNSUPPORTED). */
    const dcp_storage_writer *const *storage_writers;
    size_t storage_writer_count;

    /** Where the path is (dcp/storage.h); NULL: in the file system. Every rank passes one with the
     * same contents. For an asynchronous save it must stay until the save has ended. */
    const dcp_storage *storage;

    dcp_save_chain *chain; /**< for dcp_save_async() (async.h); ignored elsewhere */

    /** Seconds after which a save on another host is taken for dead, as its process cannot be
     * examined from here; 0 means 1800. It must be longer than the longest save, because the mark
     * has only the time of the beginning. See @ref dcp_save_owner "one owner at a time". */
    double takeover_seconds;

    /**
     * Compares replicas, which several ranks hold. Without it each rank writes its slice of a
     * replica, or one of them writes all of it, and the bytes of the others are not read. It
     * costs one more reading of the compared bytes, by one thread of each rank, and a few exchanges
     * of 16 bytes for each chunk and object of a rank. The coordinator needs about 60 bytes of
     * memory for each chunk and object of each rank. The estimate and `memory_limit` count that;
     * they do not count the message about a difference, which takes at most 35 KiB of each rank,
     * and as much of the coordinator for each rank. With a `memory_limit` the lists are exchanged
     * twice.
     *
     * A difference is DCP_ERR_REPLICA on all ranks, before any shard file is written. The message
     * names up to four tensors or objects. For each it gives the box, the ranks that agree (the
     * largest such set), the ranks that differ from them, and the range of elements, in row-major
     * order of the box, that contains all differences.
     *
     * An asynchronous save compares before dcp_save_async() returns and before anything is copied.
     * If a stager or a save with hooks makes a copy first, that copy is waited for and compared
     * instead. If a save with hooks could not open its directory, it compares before its next
     * attempt. With a
     * planner or a storage writer the plan that its hooks make is compared, and its data as hooks
     * resolve it, for which resolve_data is called once more for each compared tensor; objects are
     * compared as they were encoded for the plan.
     */
    dcp_replica_check check_replicas;
    /** A difference is logged by the coordinator as a warning, with the text of the error, and the
     * save continues. */
    bool allow_different_replicas;
    /** Allows a save whose ranks do not hold all of every tensor. Otherwise that is
     * DCP_ERR_COVERAGE. Such tensors are stored with their global shape and the chunks that are
     * held. The log names the first missing boxes as a warning; metadata.json and the coordinator's
     * `figures` count the missing tensors and elements. The checkpoint loads only together with
     * others that have the missing chunks (dcp_load_options::members). By itself it is
     * DCP_ERR_COVERAGE, whatever a load wants of it, and a fault to `dcp verify`. PyTorch loads it
     * without a warning, and leaves missing elements unchanged. With
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
     * of dcp_future_on_done(). It is not called for attempts that fail, nor with
     * DCP_ERR_UNCONFIRMED. Ranks do not wait for each other's calls. It may read the checkpoint,
     * but must not make a collective call over the group of the save. A failure of it is logged as
     * a warning. It does not undo the commit, and is not returned, because the other ranks do not
     * know of it. NULL: no call.
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
     * Small files (a configuration, a tokenizer, the state of each rank's random numbers) that
     * belong to the checkpoint. They are durable before it is committed, are replaced and removed
     * with it, and are checked by dcp_verify(). An interrupted save leaves the files of the
     * checkpoint before unchanged: there are always the old ones or the new ones, never a mixture.
     * dcp_checkpoint_find_extra_file() and dcp_checkpoint_read_extra_file() read them back.
     *
     * Each rank passes its own; the same name on two ranks is DCP_ERR_DUPLICATE, and the message
     * names both. They can be combined with kept plans, retries, a fallback path, planners and
     * `without_collectives`. An asynchronous save copies them when it is called; that memory is not
     * counted in `memory_limit`. A storage writer without a directory cannot take any
     * (DCP_ERR_ARGUMENT).
     *
     * On disk each is a file of its own, "__R.gG.extra.NAME" (of rank R, in generation G of the
     * directory), which `.metadata` names in the field "dcp_extra_files", and metadata.json in
     * "extra_files", with size and XXH3. PyTorch ignores both. Only these two say which
     * generation belongs to the checkpoint: an interrupted save may have left others.
     */
    const dcp_extra_file *extra_files;
    size_t extra_file_count;

    /** What `.metadata` says of where it was saved: PyTorch's StorageMeta.checkpoint_id, which is
     * not needed for loading. The coordinator's value is used. NULL: None. Valid UTF-8; borrowed
     * until the save has ended. With a storage writer, its storage_meta says it. */
    const char *checkpoint_id;
} dcp_save_options;

/**
 * Saves @p state as the checkpoint @p path, a directory. Collective over the group. Returns on
 * every rank only when the checkpoint is durable and visible, or with the same failure on every
 * rank; a failed save leaves nothing that looks like a checkpoint, and an earlier checkpoint
 * untouched. The one exception is DCP_ERR_UNCONFIRMED: all ranks have written, the checkpoint is
 * committed, or may be, and some rank has stopped before it could confirm that, or the storage
 * could not confirm that a power failure will not undo the commit. If the disk has too little room
 * for the new checkpoint beside the old one, that is DCP_ERR_NO_SPACE before anything is written;
 * with compression the size is not known beforehand.
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
