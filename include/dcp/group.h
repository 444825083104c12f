/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file group.h
 * @brief Process groups: how the ranks of a job communicate while they plan and commit.
 *
 * A group is an interface with a handful of collectives. In the library: one process (what a NULL
 * group means as well), several threads of one process, and one whose collectives the caller
 * supplies. libdcp_mpi adds MPI (dcp/mpi.h), libdcp_nccl adds NCCL (dcp/nccl.h). Messages carry
 * plans and statuses; where ranks share the reading of a load (dcp_load_options::reading), those of
 * `all_to_all` carry what was read as well.
 *
 * Every call has a deadline. A group in which a collective failed or timed out is broken: ranks may
 * be out of step, so every later call on it fails at once with DCP_ERR_STATE and repeats the first
 * failure. Ranks that meet in different calls (one saves, another loads) all fail at once with
 * DCP_ERR_GROUP, and the message names two ranks and their calls; then the group is broken, too.
 *
 * Threading: one collective at a time per group and rank.
 */
#ifndef DCP_GROUP_H
#define DCP_GROUP_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** In place of a color: a rank that is in no part of a group that is split. */
#define DCP_NO_COLOR (-1)

/** A process group, seen from one of its ranks. */
typedef struct dcp_group dcp_group;

/** What every collective receives besides its data. */
typedef struct dcp_collective {
    /** What the ranks are doing, for messages: "dcp_save: gathering save plans"; valid during the
     * call. */
    const char *phase;
    double timeout_seconds; /**< give up after this; always positive and finite */
} dcp_collective;

/**
 * A group's collectives. Each returns DCP_OK or a failure; a deadline that passed is
 * DCP_ERR_TIMEOUT, and the message (dcp_error_set()) names the missing ranks if the implementation
 * knows them. All ranks make the same calls in the same order with the same sizes. `all_gather` and
 * `broadcast` are required; NULL in another slot means that the library derives it.
 */
typedef struct dcp_group_operations {
    size_t size_of; /**< sizeof(dcp_group_operations), so that the struct can grow */

    /** Gives every rank the concatenation of every rank's @p bytes bytes, in rank order. */
    dcp_status (*all_gather)(void *context, const dcp_collective *call, const void *send,
                             size_t bytes, void *receive);

    /** Gives every rank the root's @p bytes bytes. */
    dcp_status (*broadcast)(void *context, const dcp_collective *call, int root, void *data,
                            size_t bytes);

    /**
     * Optional. Gives @p root all ranks' messages. Rank r sends sizes[r] bytes; at the root they
     * arrive concatenated in rank order.
     * @param sizes of all ranks, at the root; elsewhere NULL. @param bytes this rank's size.
     */
    dcp_status (*gather)(void *context, const dcp_collective *call, int root, const void *send,
                         size_t bytes, void *receive, const size_t *sizes);

    /** Optional. The reverse of gather: the root's concatenation @p send is dealt out, sizes[r]
     * bytes to rank r. */
    dcp_status (*scatter)(void *context, const dcp_collective *call, int root, const void *send,
                          const size_t *sizes, void *receive, size_t bytes);

    /** Optional. Frees @p context; called by dcp_group_free(). */
    void (*close)(void *context);

    /**
     * Optional. Every rank has a message for every other: this one gives rank r the send_sizes[r]
     * bytes at @p send + send_offsets[r], and gets receive_sizes[r] bytes from rank r, which go to
     * @p receive + receive_offsets[r]. All four arrays have one value for each rank. Sizes are the
     * same at both ends; 0 is no message, and so it is for the rank itself. Ranges of @p send may
     * overlap, as several ranks may get the same bytes; those of @p receive do not. Where it is
     * NULL, broadcasts do its work: right, but slower, as everything goes to everyone.
     */
    dcp_status (*all_to_all)(void *context, const dcp_collective *call, const void *send,
                             const size_t *send_sizes, const size_t *send_offsets, void *receive,
                             const size_t *receive_sizes, const size_t *receive_offsets);

    /**
     * Optional. Gives the context of another group of the same ranks, which another thread may use
     * while this one is in use as well. It is closed separately. NULL with DCP_OK: there can be
     * none just now (MPI without MPI_THREAD_MULTIPLE). With it, asynchronous saves commit in the
     * background; without, when they are next waited for.
     */
    dcp_status (*duplicate)(void *context, const dcp_collective *call, void **copy);

    /**
     * Optional. Splits the group: gives the context of a group of the ranks that name the same
     * @p color, in which this one is number @p rank of @p size. It is closed separately. All ranks
     * call it, right after a collective in which they told each other their colors. DCP_NO_COLOR:
     * this rank is in no part, and leaves @p part as it is.
     */
    dcp_status (*split)(void *context, const dcp_collective *call, int color, int rank, int size,
                        void **part);
} dcp_group_operations;

/**
 * For operations that wait for other ranks: logs that one waits, when that is due
 * (dcp_set_log_waits()).
 * @param waited_seconds so far; 0 to ask when it will be time.
 * @param missing which ranks have not come, such as "ranks 2, 5"; NULL: unknown.
 * @return when to call again, in seconds of waiting; HUGE_VAL: never.
 */
DCP_API double dcp_collective_log_wait(const dcp_collective *call, double waited_seconds,
                                       const char *missing);

/**
 * Makes a group of collectives that the caller supplies.
 * @param operations copied; @param rank this process, 0 to size - 1.
 * @param group owned by the caller. On failure nothing is kept and `close` is not called.
 */
DCP_API dcp_status dcp_group_new(const dcp_group_operations *operations, void *context, int rank,
                                 int size, dcp_group **group);

/**
 * Makes a group of @p size threads of this process: groups[r] is for the thread that plays rank r.
 * @param groups array of @p size handles, each freed separately; the last one frees what they
 * share.
 */
DCP_API dcp_status dcp_group_new_threads(int size, dcp_group **groups);

/**
 * Makes another group of the same ranks, for use by another thread at the same time. Collective.
 *
 * @param timeout_seconds of waits for other ranks; 0 means 1800.
 * @param copy owned by the caller; of a NULL group, NULL.
 * Errors: DCP_ERR_UNSUPPORTED, on all ranks, if the group is of a kind that cannot; others.
 */
DCP_API dcp_status dcp_group_duplicate(dcp_group *group, double timeout_seconds, dcp_group **copy);

/**
 * Splits a group, as MPI_Comm_split() does: the ranks that name the same color become a group, such
 * as those of a stage of a pipeline, which save to and load from a directory of their own.
 * Collective over @p group, which stays as it is; the parts are independent of each other.
 *
 * Where another group carries the bulk bytes (dcp_group_pair()), it is split as well.
 *
 * @param color 0 or more; DCP_NO_COLOR: this rank is in no part. @param key ranks of a part are
 * ordered by it, and as they are in @p group where keys are equal.
 * @param timeout_seconds of waits for other ranks; 0 means 1800.
 * @param part owned by the caller; NULL with DCP_NO_COLOR, which is no
 * group to save or load with, as NULL means this process alone, and NULL of a NULL group.
 * Errors: DCP_ERR_ARGUMENT, DCP_ERR_UNSUPPORTED (the group is of a kind that cannot),
 * DCP_ERR_NO_MEMORY, those of the group. Whichever rank fails, all do, and nobody gets a part.
 */
DCP_API dcp_status dcp_group_split(dcp_group *group, int color, int key, double timeout_seconds,
                                   dcp_group **part);

/**
 * Has another group of the same ranks carry bulk bytes: plans and statuses go over @p group, such
 * as one over MPI, and what ranks read for each other (dcp_load_options::reading) over @p bulk,
 * such as one over NCCL. Collective, over both.
 *
 * From then on @p bulk belongs to @p group, which frees it; the caller uses it no more. If this
 * fails it stays the caller's. A failure of @p bulk is reported to all ranks over @p group: the
 * load fails on all of them, and both are broken. Copies of the group (dcp_group_duplicate()) have
 * no bulk group, as ranks do not read for others there; parts (dcp_group_split()) are pairs of
 * parts.
 *
 * @param bulk in which each rank has the number that it has in @p group.
 * @param timeout_seconds of waits for other ranks; 0 means 1800.
 * Errors: DCP_ERR_ARGUMENT (a rank has another number, or one of the two is NULL), DCP_ERR_STATE
 * (already paired), those of both groups; the same on all ranks that passed a group.
 */
DCP_API dcp_status dcp_group_pair(dcp_group *group, dcp_group *bulk, double timeout_seconds);

/**
 * @name Collectives for callers
 * The collectives that the library uses, for callers. All ranks make the same
 * calls in the same order, these and all others on the group; each returns the same on all ranks,
 * unless the group fails. A NULL group is this process alone. `timeout_seconds` of waits for other
 * ranks; 0 means 1800.
 *
 * Errors: DCP_ERR_ARGUMENT (also where ranks pass different sizes or roots), those of the group.
 * @{
 */

/**
 * Gives every rank the bytes of every rank, in rank order.
 * @param send @p bytes bytes, as many on every rank.
 * @param receive room for @p bytes bytes of each rank, apart from @p send.
 */
DCP_API dcp_status dcp_group_all_gather(dcp_group *group, const void *send, size_t bytes,
                                        double timeout_seconds, void *receive);

/**
 * Gives every rank the bytes of one.
 * @param root whose they are. @param data @p bytes bytes, as many on every rank: read at the root,
 * written elsewhere.
 */
DCP_API dcp_status dcp_group_broadcast(dcp_group *group, int root, size_t bytes,
                                       double timeout_seconds, void *data);

/** Returns when all ranks have called it. */
DCP_API dcp_status dcp_group_barrier(dcp_group *group, double timeout_seconds);

/**
 * Agrees on one status.
 * @param mine this rank's status. If it is a failure, dcp_error_message() of the calling thread
 * goes with it, if it is the one of this status, as dcp_error_set() leaves it.
 * @return DCP_OK if all ranks passed that; else, on all of them, what the lowest rank that failed
 * has passed, with a message that names that rank.
 */
DCP_API dcp_status dcp_group_agree(dcp_group *group, dcp_status mine, double timeout_seconds);

/** @} */

/** Frees a group. NULL is allowed. */
DCP_API void dcp_group_free(dcp_group *group);

/** @return this process's rank; 0 for a NULL group. */
DCP_API int dcp_group_rank(const dcp_group *group);

/** @return number of ranks; 1 for a NULL group. */
DCP_API int dcp_group_size(const dcp_group *group);

#ifdef __cplusplus
}
#endif

#endif
