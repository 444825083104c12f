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

/** What a save does if the directory holds a checkpoint already. */
typedef enum dcp_overwrite {
    DCP_OVERWRITE_REFUSE = 0, /**< DCP_ERR_EXISTS, before anything is written */
    /** Write files of a new generation beside the old ones, commit by renaming `.metadata`, then
       remove the old ones. A crash at any moment leaves the old or the new checkpoint. */
    DCP_OVERWRITE_REPLACE = 1
} dcp_overwrite;

/** How a tensor that several ranks hold is written. Objects always go to the lowest rank that holds
 * them. */
typedef enum dcp_replicas {
    DCP_REPLICAS_SLICE =
        0, /**< large ones in slices, one by each rank that holds them; ranks write equal bytes */
    DCP_REPLICAS_WHOLE =
        1, /**< each by one rank, chosen so that ranks write about equal bytes (as PyTorch) */
    DCP_REPLICAS_LOWEST = 2 /**< each by the lowest rank that holds it */
} dcp_replicas;

/**
 * Whether a save compares replicas before anything is written: chunks of one tensor with the same
 * box, and objects of one name, by digests (XXH3) of their bytes. Chunks that overlap only in part
 * are not compared.
 */
typedef enum dcp_replica_check {
    DCP_REPLICA_CHECK_OFF = 0, /**< nothing is compared, and the check costs nothing */
    /** A part of each replica, a different one in each save: one of #DCP_REPLICA_PARTS parts, but
     * at least one block of 4 KiB. After #DCP_REPLICA_PARTS saves of the coordinator's process all
     * of a tensor has been compared. Where a rank holds more than 256 items of less than about 1
     * MiB, these take turns: about 256 of them in each save. */
    DCP_REPLICA_CHECK_SAMPLED = 1,
    DCP_REPLICA_CHECK_ALL = 2 /**< all bytes */
} dcp_replica_check;

/** Parts that #DCP_REPLICA_CHECK_SAMPLED divides the contents into. */
#define DCP_REPLICA_PARTS 251

/** How items are distributed over files. */
typedef enum dcp_file_layout {
    DCP_FILES_PER_RANK = 0, /**< `thread_count` files per rank, written side by side */
    DCP_FILE_PER_ITEM = 1   /**< one file per tensor chunk or object */
} dcp_file_layout;

/** How each stream (a tensor chunk or an object) is encoded in a file. */
typedef enum dcp_compression {
    DCP_COMPRESSION_NONE = 0,
    /** Compressed by itself, as by PyTorch's extension ZStandard: one zstd frame. PyTorch 2.7 or
     * newer reads it, if it has package zstandard or pyzstd. A part of a tensor can then only be
     * read by decompressing all of its chunk. */
    DCP_COMPRESSION_ZSTD = 1
} dcp_compression;

/* ---- of a load ---- */

/**
 * What happens when the names wanted and the names stored differ. "Missing" is wanted
 * but not stored, and "unexpected" is stored but not wanted. All of them are in the report in every
 * mode; a missing entry that is no error keeps its value. A mismatch is always an error, and so is
 * a pattern or rule of the options that no name matched ("unused"), unless
 * dcp_load_options::allow_unused_patterns says otherwise.
 *
 * Megatron-Core calls "unexpected" what is asked for but not stored, and "missing" what is stored
 * but not asked for: the other way round. Its eight modes of StrictHandling are:
 *
 * | Megatron-Core | here |
 * | --- | --- |
 * | assume_ok_unexpected | #DCP_STRICT_MISSING: there the loading itself fails on such a name |
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
    /** Nothing is an error; everything is logged, unused options that are allowed too. */
    DCP_STRICT_LOG_ALL = 21,
    DCP_STRICT_PARTIAL = 30 /**< nothing is an error (PyTorch's allow_partial_load) */
} dcp_strictness;

/**
 * How much of what is read is checked against the checksums in the files.
 *
 * Files that this library wrote have one for each block of 4 KiB: whatever is read of them is
 * widened to whole blocks, and nothing goes unchecked but with #DCP_VERIFY_NONE. A file of
 * PyTorch's has one CRC-32 for each record (a stored chunk, or a storage of a `.pt` file), and a
 * safetensors file has none.
 */
typedef enum dcp_verification {
    /** Everything is checked where that costs little. If only a part of a record with one checksum
     * is wanted, the whole record is read and checked if it has at most 1 MiB, or if the part is
     * one run of its bytes and the rest is at most an eighth of it. Bytes that are not checked are
     * counted in dcp_figures::bytes_unchecked, and logged. */
    DCP_VERIFY_ALL = 0,
    /** Everything that has a checksum is checked: records are always read whole. */
    DCP_VERIFY_RECORDS = 1,
    DCP_VERIFY_NONE = 2 /**< nothing */
} dcp_verification;

/** How a rule finds the names that it is about, and what it makes of them. */
typedef enum dcp_rename_kind {
    /** `wanted` is a whole name, and `stored` is its stored name; or that of a container (a dict or
     * list), for all below it that has no such rule of its own: "net" makes "model.w" of "net.w"
     * where `stored` is "model". */
    DCP_RENAME_EXACT = 0,
    /** Names that begin with `wanted` begin with `stored` instead. With `wanted` "" all names get a
     * prefix; with `stored` "" one is cut off. */
    DCP_RENAME_PREFIX = 10,
    /** `wanted` is a pattern, as in dcp_load_options::include. The n-th `*` of `stored` stands for
     * what the n-th `*` of `wanted` matched, which is as little as possible, the leftmost first;
     * all else of `stored` is literal. It may have fewer stars, not more. */
    DCP_RENAME_GLOB = 20
} dcp_rename_kind;

/** A rule that says under which name a checkpoint holds what the tree has under another. The struct
 * will not grow, as callers keep arrays of it. */
typedef struct dcp_rename {
    dcp_rename_kind kind;
    const char *wanted; /**< in the tree */
    const char *stored; /**< in the checkpoint */
} dcp_rename;

/** Who reads what several ranks want. */
typedef enum dcp_reading {
    /**
     * As it is estimated to be faster: cooperatively if what would be read again takes the storage
     * longer than the group takes to pass it on. The estimate knows the bytes that all ranks want
     * and the distinct ones among them; storage that serves all ranks together with 2 GiB/s where
     * `path` is on a network's file system or #DCP_IO_DIRECT is demanded, and each rank with
     * 4 GiB/s (the page cache) elsewhere; and `group_bytes_per_second`. Tensors and objects are
     * judged apart; each object is a read of its own, which takes half a millisecond on a network's
     * file system. Below 64 MiB, and 32 objects for each rank, that would be saved, directly.
     */
    DCP_READING_AUTO = 0,
    DCP_READING_DIRECT = 10, /**< each rank reads all that it wants */
    /**
     * Each byte that several ranks want is read by one of them, which passes it on through the
     * group's `all_to_all`, while it reads what follows. Ranks read about equal bytes, of large
     * tensors a part each. Objects come first, before any tensor is changed, and many small ones in
     * one message. Takes at most 32 MiB of memory at each rank, besides what a rank reads into
     * itself, the largest object, and what the group takes; more only beyond thousands of ranks.
     *
     * What a rank receives was checked by its reader as `verification` says. A tensor of a file
     * that carries no checksums of blocks (those of PyTorch) has one checksum; where ranks read
     * parts of it, those of the parts are joined and compared before the load returns, on any rank.
     * Compressed tensors are each read by one rank, and so are parts of tensors without checksums
     * of blocks that are completed for the sake of the one that they have. Each rank reads by
     * itself:
     * views in `.pt` files that are not row-major, objects with a `memory_limit`, and everything
     * where custom hooks plan or read.
     */
    DCP_READING_COOPERATIVE = 20
} dcp_reading;

/** Kinds of lines in a report. */
typedef enum dcp_difference {
    DCP_DIFFERENCE_MISSING = 0,    /**< wanted by some rank, not stored */
    DCP_DIFFERENCE_UNEXPECTED = 1, /**< stored, wanted by no rank */
    DCP_DIFFERENCE_CONVERTED = 2,  /**< stored in another dtype and converted */
    DCP_DIFFERENCE_MISMATCHED = 3, /**< stored with another shape, dtype or kind; always an error */
    DCP_DIFFERENCE_UNUSED = 4      /**< pattern or rule that applied to no name of any rank */
} dcp_difference;

/* ---- of both ---- */

/** Takes bytes, piece by piece, in their order. @return DCP_OK, or the failure that whoever gives
 * the bytes ends with. */
typedef dcp_status (*dcp_sink)(void *context, const void *bytes, size_t size);

/** Receives one fault. Strings are valid during the call; `file` and `name` may be "" where none
 * applies. */
typedef void (*dcp_fault_function)(void *context, const char *file, uint64_t offset,
                                   const char *name, const char *fault);

#ifdef __cplusplus
}
#endif

#endif
