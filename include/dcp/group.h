/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file group.h
 * @brief Process groups: communication between the ranks of a job.
 *
 * A group is an interface with a few collectives. The library has groups of one process (also a
 * NULL group), of several threads of one process, and groups with collectives that the caller
 * supplies. libdcp_mpi adds MPI (dcp/mpi.h), libdcp_nccl adds NCCL (dcp/nccl.h). Messages carry
 * plans and statuses. In cooperative loads (dcp_load_options::reading), `all_to_all` also carries
 * the data that was read, except between ranks of one host, which read it from each other's memory
 * (Linux; not where they cannot open each other's files in /proc); to another host it is sent once,
 * however many of its ranks want it.
 *
 * Every call has a deadline. When a collective fails or times out, the group is broken, because
 * ranks may be out of step: every later call on it fails at once with DCP_ERR_STATE and repeats the
 * first failure. If ranks make different calls (one saves, another loads), all fail at once with
 * DCP_ERR_GROUP, and the message names two ranks and their calls. This breaks the group, too.
 *
 * Threading: one collective at a time per group and rank.
 */
#ifndef DCP_GROUP_H
#define DCP_GROUP_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Color of a rank that will not be part of any group after a split. */
#define DCP_NO_COLOR (-1)

/** A process group, seen from one of its ranks. */
typedef struct dcp_group dcp_group;

/** Arguments that every collective receives in addition to its data. */
typedef struct dcp_collective {
    /** The current operation, for messages: "dcp_save: gathering save plans"; valid during the
     * call. */
    const char *phase;
    double timeout_seconds; /**< deadline of the call; always positive and finite */
} dcp_collective;

/**
 * The collectives of a group. Each returns DCP_OK or a failure. After the deadline it returns
 * DCP_ERR_TIMEOUT, with a message (dcp_error_set()) that names the missing ranks if the
 * implementation knows them. All ranks make the same calls in the same order with the same sizes.
 * `all_gather` and `broadcast` are required; the library derives the others if they are NULL.
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

    /** Optional. The reverse of gather: the root sends sizes[r] bytes of the concatenation @p send
     * to rank r. */
    dcp_status (*scatter)(void *context, const dcp_collective *call, int root, const void *send,
                          const size_t *sizes, void *receive, size_t bytes);

    /** Optional. Frees @p context; called by dcp_group_free(). */
    void (*close)(void *context);

    /**
     * Optional. Every rank sends a message to every other: this rank sends the send_sizes[r] bytes
     * at @p send + send_offsets[r] to rank r, and receives receive_sizes[r] bytes from rank r at @p
     * receive + receive_offsets[r]. All four arrays have one value for each rank. Both ends pass
     * the same size; 0 means no message, and is the size for the rank itself. Ranges of @p send may
     * overlap, because several ranks may receive the same bytes; ranges of @p receive do not, and
     * may lie far apart: a message that is all of a tensor's memory, or a part of it, goes straight
     * there, and @p receive is then where the first one goes (NULL: none comes). What lies between
     * them must not be touched. If it is NULL, the library uses broadcasts, which are slower
     * because every rank receives everything.
     */
    dcp_status (*all_to_all)(void *context, const dcp_collective *call, const void *send,
                             const size_t *send_sizes, const size_t *send_offsets, void *receive,
                             const size_t *receive_sizes, const size_t *receive_offsets);

    /**
     * Optional. Makes the context of another group of the same ranks, which another thread may use
     * at the same time as this one. It is closed separately. NULL with DCP_OK: not possible at
     * present (MPI without MPI_THREAD_MULTIPLE). With a duplicate, asynchronous saves commit in the
     * background; without one, they commit when the caller next waits for them.
     */
    dcp_status (*duplicate)(void *context, const dcp_collective *call, void **copy);

    /**
     * Optional. Splits the group: makes the context of a group of the ranks with the same @p color,
     * in which this process is rank @p rank of @p size. It is closed separately. All ranks call it,
     * right after a collective in which they exchanged their colors. With DCP_NO_COLOR this rank is
     * in no part, and @p part is not changed.
     */
    dcp_status (*split)(void *context, const dcp_collective *call, int color, int rank, int size,
                        void **part);
} dcp_group_operations;

/**
 * For group operations that wait for other ranks: logs the wait when it is due
 * (dcp_set_log_waits()).
 * @param waited_seconds time waited so far; 0 asks when the first message is due.
 * @param missing the ranks that have not called yet, such as "ranks 2, 5"; NULL: unknown.
 * @return the time waited after which to call again, in seconds; HUGE_VAL: never.
 */
DCP_API double dcp_collective_log_wait(const dcp_collective *call, double waited_seconds,
                                       const char *missing);

/**
 * Makes a group with collectives that the caller supplies.
 * @param operations copied; @param rank this process, 0 to size - 1.
 * @param group owned by the caller. On failure `close` is not called.
 */
DCP_API dcp_status dcp_group_new(const dcp_group_operations *operations, void *context, int rank,
                                 int size, dcp_group **group);

/**
 * Makes a group of @p size threads of this process: groups[r] is for the thread that is rank r.
 * @param groups array of @p size handles, each freed separately.
 */
DCP_API dcp_status dcp_group_new_threads(int size, dcp_group **groups);

/**
 * Makes another group of the same ranks, for use by another thread at the same time. Collective.
 *
 * @param timeout_seconds of waits for other ranks; 0 means 1800.
 * @param copy owned by the caller; NULL for a NULL group. Errors: DCP_ERR_UNSUPPORTED, on all
 * ranks, if the group cannot be duplicated; those of the group.
 */
DCP_API dcp_status dcp_group_duplicate(dcp_group *group, double timeout_seconds, dcp_group **copy);

/**
 * Splits a group, as MPI_Comm_split() does: the ranks with the same color become a group, for
 * example the ranks of a pipeline stage, which save to and load from a separate directory.
 * Collective over @p group, which does not change; the parts are independent of each other.
 *
 * If the group is paired with another one (dcp_group_pair()), that one is split as well.
 *
 * @param color 0 or more; DCP_NO_COLOR: this rank is in no part. @param key orders the ranks of a
 * part; equal keys are ordered by their rank in @p group.
 * @param timeout_seconds of waits for other ranks; 0 means 1800.
 * @param part owned by the caller; NULL with DCP_NO_COLOR and for a NULL group. Do not save or load
 * with it after DCP_NO_COLOR: a NULL group means this process alone. Errors: DCP_ERR_ARGUMENT,
 * DCP_ERR_UNSUPPORTED (the group cannot be split), DCP_ERR_NO_MEMORY, those of the group. If one
 * rank fails, all fail, and no rank gets a part.
 */
DCP_API dcp_status dcp_group_split(dcp_group *group, int color, int key, double timeout_seconds,
                                   dcp_group **part);

/**
 * Pairs a group with another group of the same ranks for bulk data: plans and statuses go over @p
 * group, for example one over MPI; data of cooperative loads (dcp_load_options::reading) goes over
 * @p bulk, for example one over NCCL. Collective over both.
 *
 * On success @p group owns @p bulk and frees it; the caller must not use it again. On failure it
 * stays the caller's. A failure of @p bulk is reported to all ranks over @p group: the load fails
 * on all of them, and both groups are broken. Duplicates (dcp_group_duplicate()) have no bulk
 * group, because they are not used for cooperative loads. Parts (dcp_group_split()) are pairs of
 * parts.
 *
 * @param bulk each process must have the same rank in it as in @p group.
 * @param timeout_seconds of waits for other ranks; 0 means 1800.
 * Errors: DCP_ERR_ARGUMENT (a process has another rank, or one of the two is NULL), DCP_ERR_STATE
 * (already paired), those of both groups; the same on all ranks that passed a group.
 */
DCP_API dcp_status dcp_group_pair(dcp_group *group, dcp_group *bulk, double timeout_seconds);

/**
 * @name Collectives for callers
 * The collectives that the library uses, for callers. All ranks make the same calls on the group in
 * the same order. Each call returns the same status on all ranks, unless the group fails. A NULL
 * group is this process alone. `timeout_seconds` limits waits for other ranks; 0 means 1800.
 *
 * Errors: DCP_ERR_ARGUMENT (also if ranks pass different sizes or roots), those of the group.
 * @{
 */

/**
 * Gives every rank the bytes of every rank, in rank order.
 * @param send @p bytes bytes, the same number on every rank.
 * @param receive memory for @p bytes bytes of each rank; must not overlap @p send.
 */
DCP_API dcp_status dcp_group_all_gather(dcp_group *group, const void *send, size_t bytes,
                                        double timeout_seconds, void *receive);

/**
 * Gives every rank the bytes of one rank.
 * @param root the rank that sends. @param data @p bytes bytes, the same number on every rank: read
 * at the root, written elsewhere.
 */
DCP_API dcp_status dcp_group_broadcast(dcp_group *group, int root, size_t bytes,
                                       double timeout_seconds, void *data);

/** Returns when all ranks have called it. */
DCP_API dcp_status dcp_group_barrier(dcp_group *group, double timeout_seconds);

/**
 * Agrees on one status.
 * @param mine this rank's status. If it is a failure, dcp_error_message() of the calling thread is
 * sent with it, provided that it was set with this status by dcp_error_set().
 * @return DCP_OK if all ranks passed DCP_OK; otherwise, on all ranks, the status of the lowest rank
 * that failed, with a message that names the rank.
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
