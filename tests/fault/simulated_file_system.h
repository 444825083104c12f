/* SPDX-License-Identifier: BSD-3-Clause */
/* A file system in memory that knows what a power cut would leave of it, and that fails when told
 * to. It stands in for file_ops_system below everything that takes a struct file_ops.
 *
 * Two views. The process sees every change at once. Durable is
 *   - of a file: the bytes and the size that it had at its last successful sync;
 *   - of a name (made by a create, a rename, an unlink, a mkdir or an rmdir): what its directory
 *     held at that directory's last successful sync_directory. Syncing a file does not make its
 *     name durable, nor a directory its own entry in its parent.
 * Everything else is pending, and a power cut may keep any part of it: a rename without the bytes
 * that it names, sizes without bytes (they read as zeros), some sectors of a write and not others,
 * later changes without earlier ones.
 *
 * Faults. Operations (every call of a file_ops function, reads included) are counted from 1; a
 * transfer of a queue counts when it is submitted ("queue_submit") and when it is carried out, on
 * completion ("pread" or "pwrite"). Queues complete what was submitted last first. One
 * fault can be set, for the n-th operation, or for that and all after it:
 *
 *     struct simulated_file_system *fs = simulated_new();
 *     for (long n = 1;; n++) {
 *         struct simulated_file_system *copy = simulated_copy(fs);
 *         simulated_set_fault(copy, &(struct simulated_fault){
 *             .operation = n, .kind = SIMULATED_ERROR, .error_number = EIO});
 *         ... run over simulated_ops(copy); an error, and nothing half-done, is expected ...
 *         assert_int_equal(simulated_open_descriptors(copy), 0);
 *         bool reached = simulated_fault_reached(copy);
 *         simulated_free(copy);
 *         if (!reached)
 *             break;
 *     }
 *
 * Crashes. With SIMULATED_CRASH the n-th operation is the last one that happens; later ones fail
 * with SIMULATED_CRASHED. Then look at everything that may be left:
 *
 *     for (size_t i = 0; i < simulated_remainder_count(copy, 20); i++) {
 *         struct simulated_file_system *left = simulated_after_power_cut(copy, i);
 *         ... load over simulated_ops(left): the old checkpoint or the new one ...
 *         simulated_free(left);
 *     }
 *
 * A process that is killed without a power cut leaves simulated_copy().
 *
 * Paths are taken apart at "/"; absolute and relative ones start at the same root; "." is ignored,
 * ".." refused; symbolic links do not exist. Directories are opened
 * like files, and stay what they are when they are renamed or removed. Renames across directories
 * are refused (EXDEV). All operations are thread-safe, the rest is for when none is running. Memory
 * comes from malloc, so that a failing allocator of the library does not reach it; without memory
 * the test aborts. */
#ifndef FAULT_SIMULATED_FILE_SYSTEM_H
#define FAULT_SIMULATED_FILE_SYSTEM_H

#include <errno.h>

#include "dcp/storage.h"
#include "storage/files/file.h"

struct simulated_file_system;

/* What operations return after a crash; nothing else returns it. */
#define SIMULATED_CRASHED ESHUTDOWN

enum simulated_fault_kind {
    /* The operation fails with error_number and changes nothing, with two exceptions. A close
     * closes all the same. A sync that fails other than with EINTR loses the bytes that were to be
     * written: they stay visible, a later sync succeeds, and they are never durable (as on ext4).
     */
    SIMULATED_ERROR,
    /* A pread or pwrite moves one byte, or all but the last; other operations are not affected. */
    SIMULATED_SHORT_ONE,
    SIMULATED_SHORT_BY_ONE,
    /* The operation is the last that happens. */
    SIMULATED_CRASH,
    /* Before the operation somebody else cuts every file to half of its size. */
    SIMULATED_SHRINK,
    /* Before the operation somebody else removes every directory that holds files, with them. What
     * is open stays readable. */
    SIMULATED_VANISH
};

struct simulated_fault {
    long operation; /* from 1 */
    enum simulated_fault_kind kind;
    int error_number;
    bool from_then_on; /* not with EINTR, which callers rightly repeat for ever */
};

/* Empty but for the root, which is durable. */
struct simulated_file_system *simulated_new(void);
void simulated_free(struct simulated_file_system *fs);
/* The same files as the process sees them, all durable; no fault, nothing open, nothing counted. */
struct simulated_file_system *simulated_copy(const struct simulated_file_system *fs);
/* Valid as long as the file system. */
const struct file_ops *simulated_ops(struct simulated_file_system *fs);
/* As a storage, likewise. */
const dcp_storage *simulated_storage(struct simulated_file_system *fs);

/* Begins counting anew. NULL: no fault. */
void simulated_set_fault(struct simulated_file_system *fs, const struct simulated_fault *fault);
/* Is called before each operation, by the thread that asks for it, and may use the file system;
 * NULL: nothing is. Copies have none. */
void simulated_set_watcher(struct simulated_file_system *fs, void (*watcher)(void *context),
                           void *context);
/* Whether the operation of the fault has been asked for. */
bool simulated_fault_reached(const struct simulated_file_system *fs);
long simulated_operation_count(const struct simulated_file_system *fs);
/* What the n-th operation was, for messages: "rename /c/.metadata.tmp". */
const char *simulated_operation_name(const struct simulated_file_system *fs, long n);
/* Descriptors, queues and mappings not yet closed. Mappings are copies of what was there. */
int simulated_open_descriptors(const struct simulated_file_system *fs);
/* Direct transfers fail with EINVAL, although files can be opened for them. Without this they fail
 * so if they are not aligned. */
void simulated_refuse_direct(struct simulated_file_system *fs);
/* Bytes of all files together, beyond which writes are short and then fail with ENOSPC; 0: any, and
 * free_space says that it does not know. */
void simulated_set_capacity(struct simulated_file_system *fs, uint64_t bytes);
/* free_space is not there, as if the capacity were a quota. */
void simulated_hide_free_space(struct simulated_file_system *fs);

/* A rename onto ".metadata" is a commit: by then the bytes and the name of every shard file
 * (*.distcp) in that directory, the bytes of the renamed file, and the directory's own entry and
 * those above it must be durable. If not, the test is aborted with the message, unless allowed. */
void simulated_allow_early_commits(struct simulated_file_system *fs);
/* The message of the first early commit; NULL: none. */
const char *simulated_early_commit(const struct simulated_file_system *fs);

/* Number of remainders that simulated_after_power_cut() gives: nothing of what is pending; all;
 * names and sizes without bytes; bytes and sizes without names; for each pending change only that
 * one, all but that one, and all before it with that one torn; and as many random choices as asked
 * for, of sectors of 512 and pages of 4096 bytes. */
size_t simulated_remainder_count(const struct simulated_file_system *fs, size_t random_choices);
/* What is found when the power is back: as simulated_copy(), of what was durable and the index-th
 * choice of what was pending. Beyond the counted ones, any index is another random choice. */
struct simulated_file_system *simulated_after_power_cut(const struct simulated_file_system *fs,
                                                        size_t index);
/* The index-th choice in words, for messages. */
void simulated_remainder_name(const struct simulated_file_system *fs, size_t index, char *text,
                              size_t size);

#endif
