/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file load.h
 * @brief Loading a checkpoint into a state tree, at any topology.
 */
#ifndef DCP_LOAD_H
#define DCP_LOAD_H

#include "environment.h"
#include "figures.h"
#include "group.h"
#include "progress.h"
#include "state.h"
#include "storage.h"
#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Most threads that one rank may read with. */
#define DCP_MAX_LOAD_THREADS 16

/**
 * Keeps the plan of a load, so that the next load of the same structure need not plan again, as in
 * an evaluation loop.
 *
 * It keeps the metadata and the plan that all ranks made for it. Checkpoints of one training run
 * differ only in the save's id, the names of files, and the places of chunks and objects in them.
 * For such a checkpoint the coordinator sends the other ranks only what has changed. If each rank
 * also wants the same names, kinds, dtypes, shapes and chunks, with the same patterns, rules and
 * other options, one small exchange shows that, and the plan is used again
 * (dcp_figures::plan_reused). Otherwise all plan again. Values, memory, directories and strictness
 * may differ. Data is checked as in any load, and the report is the same.
 *
 * Owned by the caller, one on each rank, passed to one load at a time. It takes the memory of a
 * plan and of the checkpoint's metadata, and holds no pointers into the state. All ranks of a load
 * pass one or none does. With a planner, or a storage reader that plans or reads by itself, only
 * the metadata is kept, and hooks plan each load anew. It is ignored with a memory_limit, and for
 * everything other than directories with `.metadata` and unions of these.
 */
typedef struct dcp_load_plan_cache dcp_load_plan_cache;

/** @param cache owned by the caller. */
DCP_API dcp_status dcp_load_plan_cache_new(dcp_load_plan_cache **cache);
/** NULL is allowed. */
DCP_API void dcp_load_plan_cache_free(dcp_load_plan_cache *cache);

/**
 * Options of a load. All zero is the sensible default. Every rank must pass the same values; those
 * that decide what is loaded are compared. Arrays and texts are borrowed for the call.
 *
 * The options of PyTorch's load() and DefaultLoadPlanner, and what they are here:
 *
 * | PyTorch | here |
 * | --- | --- |
 * | process_group, coordinator_rank | `group`, `coordinator` |
 * | no_dist | `no_dist`, or no `group` |
 * | checkpoint_id, storage_reader | the path, `storage_reader`, `storage_readers` |
 * | planner | `planner` |
 * | | `plan_cache`: plans are kept from load to load |
 * | allow_partial_load | `strictness` #DCP_STRICT_PARTIAL |
 * | flatten_state_dict=False | `unflattened` |
 * | flatten_sharded_tensors | always: chunks of a tensor lie side by side, never nested |
 */
typedef struct dcp_load_options {
    dcp_group *group;    /**< the ranks that load together; NULL: this process alone */
    int32_t coordinator; /**< rank that reads the metadata */
    dcp_strictness strictness;
    dcp_verification verification;
    bool convert; /**< convert between real dtypes where stored and wanted differ; else that is an
                     error */
    double timeout_seconds; /**< deadline of each wait for other ranks; half of it is the deadline
                               for earlier work of devices; 0 means 1800 */
    int32_t thread_count;   /**< threads of this rank that read tensors, at most
                               DCP_MAX_LOAD_THREADS; 0 means up to 4, depending on the size of
                               the load and the number of processors */
    uint32_t io; /**< of dcp_io: how large tensors are read. By default, bytes that are in the page
                    cache are read from there, and others bypass it. */

    /**
     * Patterns over flattened names: the load takes names that match one of `include` (all names if
     * there is none) and none of `exclude`. `*` matches any run of characters, dots too, `?` one
     * character, `[abc]`, `[a-z]` and `[!abc]` one of a set or one that is not in it; the whole
     * name must match. A name without any of these stands for all that is below it as well:
     * "optimizer" is "optimizer" and "optimizer.*".
     *
     * A pattern must match a name of some rank's tree, or a stored name that nothing in the trees
     * asks for. Otherwise it is an error (DCP_ERR_ARGUMENT), before anything is read; the message
     * names the pattern, and names that may have been meant. See `allow_unused_patterns`.
     *
     * A name of the tree that is left out keeps its value and is not missing. A stateful entry is
     * not called if everything in it is left out. A stored name that nothing in the tree asks for
     * is matched as it is stored, and is not unexpected if it is left out.
     */
    const char *const *include;
    size_t include_count;
    const char *const *exclude;
    size_t exclude_count;

    /**
     * Rules for names of the tree that are stored under other names. Only the first rule that
     * matches a name is applied; the patterns above are matched with the tree's name. Several names
     * may have the same stored name (tied weights): each is filled from it. A rule that applies to
     * no name of any rank's tree is an error, like an unused pattern.
     */
    const dcp_rename *renames;
    size_t rename_count;

    dcp_figures *figures; /**< each rank's own; filled in when the load returns, if not NULL */

    dcp_progress_function progress; /**< called with how far this rank has come; optional */
    void *progress_context;

    /**
     * Every value of the root is one entry, whatever is in it (PyTorch's flatten_state_dict=False):
     * a nested dict is replaced as a whole by the object that is stored under its key, tensors in
     * it and all. Otherwise a nested dict without tensors is replaced as a whole if it is stored as
     * one object; otherwise its values are entries.
     */
    bool unflattened;

    /**
     * Several directories that are one checkpoint: the parts that groups of ranks saved separately,
     * such as the stages of a pipeline. Members that do not begin with "/" are relative to `path`,
     * which need not hold anything else. Without members, a `path` that holds no checkpoint but the
     * directories pp0, pp1 and so on, none missing and none a symbolic link, is their union. So is
     * one that holds what frameworks divide a checkpoint into: pytorch_model_fsdp_0 and optimizer_0
     * (Transformers, Accelerate), model and optim (NeMo AutoModel), or all in model_and_optim
     * (OLMo-core) or weights (NeMo). Directories of other names never are, so that no two steps of
     * a run are mixed up. A member is a DCP directory or one of safetensors files.
     *
     * Each name is in one member, or in several with the same kind, dtype, global shape and value.
     * Values are compared, by the checksums in the files where these allow it, unless
     * `verification` is #DCP_VERIFY_NONE; then the first member's are loaded. Chunks of one tensor
     * may lie in several members. Conflicts are errors that name both members: DCP_ERR_KIND,
     * DCP_ERR_DTYPE, DCP_ERR_SHAPE, DCP_ERR_OVERLAP, DCP_ERR_DUPLICATE (values).
     */
    const char *const *members;
    size_t member_count;

    dcp_reading reading; /**< who reads what several ranks want */
    /** Bytes per second that each rank can send to those of other hosts while all ranks send, for
     * #DCP_READING_AUTO; 0 means 1 GiB/s. */
    uint64_t group_bytes_per_second;

    dcp_io_priority io_priority; /**< of reading */

    /** Hooks into planning (dcp/load_planner.h); NULL: none. */
    const struct dcp_load_planner *planner;

    /**
     * Where to read from (dcp/storage_reader.h), whatever the path is; it may then be left out.
     * Otherwise the first of `storage_readers` that takes the path as its checkpoint id is used. If
     * there is none, the path is a file or directory, unless it begins with a "scheme://", which is
     * an error (DCP_ERR_UNSUPPORTED).
     */
    const struct dcp_storage_reader *storage_reader;
    const struct dcp_storage_reader *const *storage_readers;
    size_t storage_reader_count;

    /** Load alone even if a group is given (PyTorch's no_dist): this process is the coordinator,
     * and waits for no other rank. */
    bool no_dist;

    /**
     * The most memory that each rank may take at a time, in bytes; 0: no limit. It covers plans,
     * metadata, buffers and stacks of threads, but not the state and the objects that are loaded
     * into it. To stay within it, fewer threads read through smaller buffers. If there is too
     * little memory for reading around the page cache or for reading cooperatively, reads go
     * through the page cache and each rank reads for itself, whatever `io` and `reading` say.
     * Compressed tensors are decompressed as they are read. That takes the window of their frames
     * (2 MiB at the default level, 128 MiB at most) and less than 1 MiB for each thread. The window
     * must be known beforehand, so the headers of all streams that other writers made are read
     * first.
     *
     * If the limit is too small, no destination is changed. The message of DCP_ERR_NO_MEMORY names
     * the smallest sufficient limit, the same on all ranks. To find it, the plans are made and
     * objects are read again without a limit, stateful entries are asked again, and hooks that plan
     * are called once more. With a planner, or a storage reader that plans or reads by itself, one
     * thread reads, and objects are read twice. Memory that hooks allocate is not counted, nor is
     * what `read_data` brings if the library cannot read the files of the checkpoint itself.
     */
    uint64_t memory_limit;

    /** What is kept between loads of the same structure; NULL: nothing. */
    dcp_load_plan_cache *plan_cache;

    /** Where the path is (dcp/storage.h); NULL: in the file system. Every rank passes one with the
     * same contents. */
    const dcp_storage *storage;

    /** Patterns and rules that match no name are not an error. For options that serve different
     * trees and checkpoints. The report lists them in any case. */
    bool allow_unused_patterns;

    /** What is wanted of a training checkpoint of another framework. See dcp_load(). */
    dcp_take take;
} dcp_load_options;

/** What a load found; the same on every rank, except for the two numbers of bytes. */
typedef struct dcp_load_report dcp_load_report;

/** One line of a report; borrowed from it. */
typedef struct dcp_report_line {
    dcp_difference difference;
    const char *name; /**< flattened name; if unused, the pattern or the rule's `wanted` */
    /** For example "float32 -> bfloat16", "stored [12], wanted [13] on rank 2 and 5 more"; of a
     * missing name that only some ranks want, "wanted on rank 2 and 5 more"; "" if the name says it
     * all. */
    const char *detail;
    const char *stored_name; /**< what was looked for: other than the name if a rule renamed it */
} dcp_report_line;

/**
 * Fills @p state from the checkpoint @p path. Collective over the group. The tree says what is
 * wanted: tensors with this rank's chunks and memory are filled in place (a chunk without memory
 * gets some, see dcp_state_chunk()), objects are replaced by what is stored, and the callbacks of
 * stateful entries are called. Memory that overlaps itself, or that the process may not write (a
 * file that is mapped for reading), is refused before anything is read: DCP_ERR_ARGUMENT.
 *
 * Succeeds only if all elements that were written to destinations match their checksums, where
 * there are any (see dcp_verification). Bytes that were not checked are counted in figures and
 * report, and logged (DCP_LOG_INFO). On failure every rank returns the same status, and the message
 * says whether destinations were changed already.
 *
 * @param path directory of a checkpoint (`.metadata`, or `__*.metadata` of a save without
 * collectives), directory of safetensors files, directory of pipeline stages pp0, pp1 and so on
 * or of other parts (dcp_load_options::members) that are such directories, or a `.pt` file of
 * torch.save. Also the directory of a training checkpoint of DeepSpeed, Megatron-Core or
 * torch_checkpointing, or of its run, in the file system: dcp_load_options::take says what is taken
 * of it. Of `.pt` files, safetensors and training checkpoints the coordinator reads what is in them
 * for all ranks, and each rank reads what it wants of the tensors; if some rank does not see a file
 * that it wants something of, or sees one of another size, the coordinator reads for all, whatever
 * `reading` says but #DCP_READING_DIRECT. With a `memory_limit` that has no room for that, the load
 * fails. Tensors have the dtype that is stored: of DeepSpeed's ZeRO-3 the model's are float32, so
 * that another one needs `convert`. DCP_ERR_UNSUPPORTED for the few tensors that cannot be read
 * where they are stored, which dcp_convert() takes (src/convert/README.md). The directory of a step
 * of Megatron-Core has `.metadata`: it is a training checkpoint if `take` is not #DCP_TAKE_MODEL,
 * and otherwise has all names that are stored.
 * @param report if not NULL, receives a report, owned by the caller, also when the load failed
 * because of what is in it; NULL on other failures.
 */
DCP_API dcp_status dcp_load_sized(dcp_state *state, const char *path,
                                  const dcp_load_options *options, size_t options_size,
                                  dcp_load_report **report);

static inline dcp_status dcp_load(dcp_state *state, const char *path,
                                  const dcp_load_options *options, dcp_load_report **report)
{
    return dcp_load_sized(state, path, options, sizeof *options, report);
}

/** @return number of lines. */
DCP_API size_t dcp_load_report_count(const dcp_load_report *report);

/** Gives line @p index. Lines are sorted by difference, then name. Errors: DCP_ERR_ARGUMENT. */
DCP_API dcp_status dcp_load_report_line_sized(const dcp_load_report *report, size_t index,
                                              dcp_report_line *line, size_t line_size);

static inline dcp_status dcp_load_report_line(const dcp_load_report *report, size_t index,
                                              dcp_report_line *line)
{
    return dcp_load_report_line_sized(report, index, line, sizeof *line);
}

/** The fields of dcp_figures with the same names: of this rank, unlike the rest of the report. */
DCP_API uint64_t dcp_load_report_bytes_checked(const dcp_load_report *report);
DCP_API uint64_t dcp_load_report_bytes_unchecked(const dcp_load_report *report);

DCP_API void dcp_load_report_free(dcp_load_report *report);

#ifdef __cplusplus
}
#endif

#endif
