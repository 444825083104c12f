/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file types.h
 * @brief Options of saves and loads that several headers use.
 */
#ifndef DCP_TYPES_H
#define DCP_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- of a save ---- */

/** What a save does if the directory already holds a checkpoint. */
typedef enum dcp_overwrite {
    DCP_OVERWRITE_REFUSE = 0, /**< DCP_ERR_EXISTS, before anything is written */
    /** Writes files of a new generation beside the old ones, commits by renaming `.metadata`, then
       removes the old files. A crash at any moment leaves the old or the new checkpoint. */
    DCP_OVERWRITE_REPLACE = 1
} dcp_overwrite;

/** Which ranks write a tensor that several ranks hold. Objects are always written by the lowest
 * rank that holds them. */
typedef enum dcp_replicas {
    DCP_REPLICAS_SLICE = 0, /**< large tensors are divided into one slice for each rank that holds
                               them; ranks write about equal bytes */
    DCP_REPLICAS_WHOLE = 1, /**< each tensor is written by one rank, chosen so that ranks write
                               about equal bytes (as PyTorch) */
    DCP_REPLICAS_LOWEST = 2 /**< each tensor is written by the lowest rank that holds it */
} dcp_replicas;

/**
 * Whether a save compares replicas before it writes anything: chunks of one tensor with the same
 * box, and objects of one name. Digests (XXH3) of their bytes are compared. Chunks that overlap
 * only partly are not compared.
 */
typedef enum dcp_replica_check {
    DCP_REPLICA_CHECK_OFF = 0, /**< nothing is compared */
    /** One of #DCP_REPLICA_PARTS parts of each replica, at least one block of 4 KiB; each save
     * takes another part. After #DCP_REPLICA_PARTS saves by the coordinator's process, all of a
     * tensor has been compared. If a rank holds more than 256 items of less than about 1 MiB, each
     * save compares about 256 of them in turn. */
    DCP_REPLICA_CHECK_SAMPLED = 1,
    DCP_REPLICA_CHECK_ALL = 2 /**< all bytes */
} dcp_replica_check;

/** Number of parts that #DCP_REPLICA_CHECK_SAMPLED divides a replica into. */
#define DCP_REPLICA_PARTS 251

/** How items are distributed over files. */
typedef enum dcp_file_layout {
    DCP_FILES_PER_RANK = 0, /**< `thread_count` files per rank, written in parallel */
    DCP_FILE_PER_ITEM = 1   /**< one file per tensor chunk or object */
} dcp_file_layout;

/** How each stream (a tensor chunk or an object) is encoded in a file. */
typedef enum dcp_compression {
    DCP_COMPRESSION_NONE = 0,
    /** Each stream is one zstd frame, as with PyTorch's extension ZStandard. PyTorch 2.7 and newer
     * reads it if the package zstandard or pyzstd is installed. Reading a part of a tensor then
     * decompresses the whole chunk. */
    DCP_COMPRESSION_ZSTD = 1
} dcp_compression;

/* ---- of a load ---- */

/** What is taken from a training checkpoint of another framework, which has more than one set of
 * weights. Checkpoints of other forms are taken as they are. */
typedef enum dcp_take {
    /** The model's weights as they were trained, under the model's names. */
    DCP_TAKE_MODEL = 0,
    /** The optimizer's fp32 weights, under the same names. Tensors without them, such as buffers
     * and frozen parameters, are widened from float16 or bfloat16. DCP_ERR_UNSUPPORTED if the
     * checkpoint has no fp32 weights. */
    DCP_TAKE_MASTERS = 10,
    /** All: the model below "model", the optimizer's state, and the rest of the training. Of
     * DeepSpeed, `optim.NAME.KEY` for each parameter, where the key is "fp32" for the weights. Of
     * torch_checkpointing, all items with their names; of Megatron-Core, all items with their
     * stored names, also those of common.pt and train_state.pt. */
    DCP_TAKE_ALL = 20
} dcp_take;

/**
 * What happens when the names wanted and the names stored differ. A "missing" name is wanted but
 * not stored; an "unexpected" name is stored but not wanted. The report lists all of them in every
 * mode. A missing entry that is not an error keeps its value. A mismatch is always an error. A
 * pattern or rule of the options that no name matches ("unused") is an error unless
 * dcp_load_options::allow_unused_patterns is set.
 *
 * Megatron-Core uses the two words the other way round: "unexpected" for names that are requested
 * but not stored, "missing" for names that are stored but not requested. Its eight modes of
 * StrictHandling are:
 *
 * | Megatron-Core | here |
 * | --- | --- |
 * | assume_ok_unexpected | #DCP_STRICT_MISSING: the load fails on such a name |
 * | raise_unexpected | #DCP_STRICT_MISSING |
 * | raise_all | #DCP_STRICT_RAISE_ALL |
 * | log_unexpected | #DCP_STRICT_LOG_MISSING |
 * | log_all | #DCP_STRICT_LOG_ALL |
 * | return_unexpected | #DCP_STRICT_PARTIAL, and the report's missing lines |
 * | return_all | #DCP_STRICT_PARTIAL, and the report |
 * | ignore_all | #DCP_STRICT_PARTIAL, without a report |
 *
 * The coordinator logs one warning for each kind of difference, with the text and the first names
 * of the error.
 */
typedef enum dcp_strictness {
    DCP_STRICT_MISSING = 0,    /**< missing names are an error, unexpected ones are not (PyTorch) */
    DCP_STRICT_RAISE_ALL = 10, /**< missing and unexpected names are errors */
    DCP_STRICT_LOG_MISSING = 20, /**< nothing is an error; missing names are logged */
    /** Nothing is an error; all differences are logged, also unused options that are allowed. */
    DCP_STRICT_LOG_ALL = 21,
    DCP_STRICT_PARTIAL = 30 /**< nothing is an error (PyTorch's allow_partial_load) */
} dcp_strictness;

/**
 * Which checksums are compared while reading.
 *
 * Files that this library wrote have a checksum for each block of 4 KiB. Reads of such files are
 * widened to whole blocks, so that all bytes are checked unless #DCP_VERIFY_NONE is given. Files of
 * PyTorch have one CRC-32 for each record (a stored chunk, or a storage of a `.pt` file).
 * Safetensors files have no checksums.
 */
typedef enum dcp_verification {
    /** Checks everything that can be checked at little cost. If only a part of a record with one
     * checksum is wanted, it is checked in four cases:
     *
     * - The ranks of a dcp_load() want contiguous parts of the tensor that are together all of it,
     *   without a `memory_limit`: each rank reads its part, and at the end the checksums of the
     *   parts are joined and compared. If that fails, it does so on all ranks. If the tensor is
     *   stored transposed, the rank with the first part reads all of the record.
     * - The record has at most 1 MiB: the rank reads all of it.
     * - The part is contiguous and the rest is at most an eighth of the record: likewise.
     * - Contiguous reads of an open checkpoint are together all of it: see
     *   dcp_checkpoint_read_tensor().
     *
     * Bytes that are not checked are counted in dcp_figures::bytes_unchecked and logged. */
    DCP_VERIFY_ALL = 0,
    /** Checks everything that has a checksum: records are always read whole, by each rank that
     * wants some of it, or by several together as above. */
    DCP_VERIFY_RECORDS = 1,
    DCP_VERIFY_NONE = 2 /**< nothing */
} dcp_verification;

/** Which names a rule matches, and how it renames them. */
typedef enum dcp_rename_kind {
    /** `wanted` is a whole name, and `stored` is its stored name. If `wanted` is the name of a
     * container (a dict or list), the rule applies to every name below it that has no exact rule
     * itself: with `wanted` "net" and `stored` "model", "net.w" becomes "model.w". */
    DCP_RENAME_EXACT = 0,
    /** Names that begin with `wanted` begin with `stored` instead. An empty `wanted` adds a prefix
     * to all names; an empty `stored` removes one. */
    DCP_RENAME_PREFIX = 10,
    /** `wanted` is a pattern, as in dcp_load_options::include. The n-th `*` of `stored` is replaced
     * by the text that the n-th `*` of `wanted` matched. Each `*` matches as little as possible,
     * the leftmost first. The rest of `stored` is literal. It may not have more stars than
     * `wanted`. */
    DCP_RENAME_GLOB = 20
} dcp_rename_kind;

/** A rule for names of the tree that the checkpoint stores under other names. The struct will not
 * grow, because callers keep arrays of it. */
typedef struct dcp_rename {
    dcp_rename_kind kind;
    const char *wanted; /**< in the tree */
    const char *stored; /**< in the checkpoint */
} dcp_rename;

/** Which rank reads data that several ranks want. */
typedef enum dcp_reading {
    /**
     * The faster way by an estimate: cooperatively if reading the same bytes several times takes
     * the storage as long as the group takes to send them, or longer. The estimate uses the bytes
     * that all ranks want, the distinct bytes among them, and `group_bytes_per_second`, at which
     * each is sent to another host once; between ranks of one host (see below) 3 GiB/s. Without
     * `all_to_all`, ranks of several hosts send all distinct bytes to all of them, one rank after
     * the other. It assumes that the storage delivers 2 GiB/s to all ranks together if `path` is on
     * a network file system, #DCP_IO_DIRECT is required, or some rank would read large tensors
     * around the page cache since that does not hold them; otherwise 4 GiB/s to each rank (page
     * cache). In the former case, a stored chunk that ranks divide by columns, in runs of less than
     * 1 MiB, counts as if each of them wanted all of it, because it would read what is in between.
     * Tensors and objects are estimated separately; each object is one read, of half a millisecond
     * on a network file system. If cooperative reading would save less than 64 MiB, or less than 32
     * objects for each rank, each rank reads for itself.
     */
    DCP_READING_AUTO = 0,
    DCP_READING_DIRECT = 10, /**< each rank reads everything that it wants */
    /**
     * Each byte that several ranks want is read by one of them and sent to the others through the
     * group's `all_to_all`, while the next bytes are read. Ranks of one host read each other's
     * buffers instead (memfd_create() of Linux; ranks of one user, pid namespace and network
     * namespace that can open each other's files in /proc), and tell each other there how far they
     * are, without the group. What several of them want from a rank of another host is sent to one
     * of them, for all. If it has no `all_to_all` and ranks are on several hosts, bytes are
     * broadcast to all. Ranks read about equal bytes; large tensors are divided among them. Of
     * chunks that ranks divide by columns (see above), each rank reads some, in stripes of 5 MiB,
     * and sends the others their columns. Objects are read first, before any tensor is changed, and
     * small objects share a message. Each rank takes at most 32 MiB of memory in addition to its
     * own read buffers, the largest object and the memory of the group; with several thousand ranks
     * it may take more.
     *
     * The reader checks the data as `verification` says before it is sent. In files without block
     * checksums (those of PyTorch) a tensor has one checksum. If several ranks read parts of such a
     * tensor, the checksums of the parts are combined and compared before the load returns on any
     * rank. A compressed tensor is read by one rank; so is a tensor that must be read whole to
     * check its one checksum. Each rank reads for itself: views in `.pt` files that are not
     * row-major, objects if there is a `memory_limit`, and everything if custom hooks plan or read.
     */
    DCP_READING_COOPERATIVE = 20
} dcp_reading;

/** Kinds of lines in a report. */
typedef enum dcp_difference {
    DCP_DIFFERENCE_MISSING = 0,    /**< wanted by some rank, not stored */
    DCP_DIFFERENCE_UNEXPECTED = 1, /**< stored, wanted by no rank */
    DCP_DIFFERENCE_CONVERTED = 2,  /**< stored in another dtype and converted */
    DCP_DIFFERENCE_MISMATCHED = 3, /**< stored with another shape, dtype or kind; always an error */
    DCP_DIFFERENCE_UNUSED = 4      /**< a pattern or rule that matched no name of any rank */
} dcp_difference;

/* ---- of both ---- */

/** Receives bytes, piece by piece, in order. @return DCP_OK, or a failure, which ends the call that
 * passes the bytes and is its result. */
typedef dcp_status (*dcp_sink)(void *context, const void *bytes, size_t size);

/** Receives one fault. Strings are valid during the call; `file` and `name` may be "" if none
 * applies. */
typedef void (*dcp_fault_function)(void *context, const char *file, uint64_t offset,
                                   const char *name, const char *fault);

#ifdef __cplusplus
}
#endif

#endif
