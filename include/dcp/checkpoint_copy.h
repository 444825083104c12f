/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file checkpoint_copy.h
 * @brief Copying a checkpoint as it is from one place to another, verified.
 */
#ifndef DCP_CHECKPOINT_COPY_H
#define DCP_CHECKPOINT_COPY_H

#include "progress.h"
#include "storage.h"

#ifdef __cplusplus
extern "C" {
#endif

/** How a checkpoint is copied. All zero is the sensible default. */
typedef struct dcp_copy_options {
    const dcp_storage *source;      /**< where the checkpoint is; NULL: in the file system */
    const dcp_storage *destination; /**< where the copy goes; NULL: to the file system */
    /** Another checkpoint that is at the destination gives way; else it is DCP_ERR_EXISTS. */
    bool replace;
    /** The source is not verified (dcp_verify()) before it is copied: whoever loads the copy checks
     * it anyway. */
    bool trust_source;
    /** Files of a copy that is committed are compared by their bytes, and repaired. Otherwise their
     * sizes tell that it is whole. */
    bool compare_all;
    bool dry_run; /**< nothing is written: the result says what would be */
    /** Of what goes to the destination and is read back from there; 0: no limit. */
    uint64_t bytes_per_second;
    /** Asked again and again, on the calling thread: the copy ends with DCP_ERR_CANCELLED once it
     * says so; optional. */
    bool (*stopped)(void *context);
    void *stopped_context;
    /** Of the destination's owner; as dcp_save_options::takeover_seconds, with the same default for
     * 0. */
    double takeover_seconds;
    /** Called while bytes are moved, by any thread: with #DCP_PHASE_READING while the source is
     * verified, then with #DCP_PHASE_WRITING, when each byte counts twice: written and read back,
     * or, of a file that is there, read here and there. Each phase has its own total. A false ends
     * the copy with DCP_ERR_CANCELLED; optional. */
    dcp_progress_function progress;
    void *progress_context;
} dcp_copy_options;

/** What dcp_checkpoint_copy() has done, also after a failure. */
typedef struct dcp_copied {
    bool was_whole;      /**< the destination had this checkpoint: nothing was copied */
    uint64_t files;      /**< that were copied */
    uint64_t bytes;      /**< of these */
    uint64_t kept_files; /**< that were there and whole already, as after an interrupted copy */
    uint64_t kept_bytes; /**< of these */
} dcp_copied;

/**
 * Copies a checkpoint: shards, extra files, metadata.json, and whatever else lies in its directory
 * and below, as frameworks put it there; but no owner marks, temporary files, and shards that
 * `.metadata` does not name. Symbolic links are refused.
 *
 * The source is verified first. Every file is then written under its name, durably, and read back
 * and compared with what was read from the source. When all are there, `.metadata` is published,
 * those of members (`pp0`, `pp1` ...) before the checkpoint's own. So an interrupted copy is no
 * checkpoint, and the next call goes on with it: files that are whole there, which their bytes tell
 * and not only their sizes, are not copied again.
 *
 * Another checkpoint at the destination stays loadable until the new one takes its place, unless
 * both have files of the same name: then its metadata goes before the first of these is replaced.
 * Its other shards are removed at the end.
 *
 * The call owns the destination as a save does (@ref dcp_save_owner "one owner at a time"): another
 * copy, a save or a removal there is #DCP_ERR_BUSY until this one has ended, and so is this one
 * while another of them is at work. A copy whose destination was taken over ends with DCP_ERR_BUSY
 * before its next file, and commits nothing.
 *
 * A file is read and written in up to four parts of 1 MiB at a time, each by a thread of the call.
 *
 * Threading: any number of threads and processes may copy at the same time.
 * @param options NULL: all defaults. @param copied may be NULL.
 * Errors: DCP_ERR_NOT_FOUND if the source is none, DCP_ERR_CHECKSUM if the source is damaged or a
 * file came out different, DCP_ERR_BUSY if the source was replaced meanwhile or the destination has
 * another owner, DCP_ERR_EXISTS, DCP_ERR_NO_SPACE, DCP_ERR_CANCELLED, and those of the storages.
 */
DCP_API dcp_status dcp_checkpoint_copy_sized(const char *source, const char *destination,
                                             const dcp_copy_options *options, size_t options_size,
                                             dcp_copied *copied, size_t copied_size);

static inline dcp_status dcp_checkpoint_copy(const char *source, const char *destination,
                                             const dcp_copy_options *options, dcp_copied *copied)
{
    return dcp_checkpoint_copy_sized(source, destination, options, sizeof *options, copied,
                                     sizeof *copied);
}

#ifdef __cplusplus
}
#endif

#endif
