/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file async.h
 * @brief Saving while training goes on.
 *
 * dcp_save_async() plans the save, copies the state to host memory (staging), and returns. Threads
 * of the library write the copy and make the checkpoint visible. A future represents the save.
 *
 * Saves that follow each other share a chain. It keeps the staging memory from one to the next, and
 * allows one save at a time, so that there are never two copies of the state in memory.
 */
#ifndef DCP_ASYNC_H
#define DCP_ASYNC_H

#include "save.h"

#ifdef __cplusplus
extern "C" {
#endif

/** How the state is copied. Names follow PyTorch's stagers. */
typedef enum dcp_staging_kind {
    DCP_STAGING_BLOCKING = 0, /**< all is copied when dcp_save_async() returns */
    /** The same, into page-locked memory, which devices copy to at full speed. */
    DCP_STAGING_PINNED = 1,
    /** Copied in the background, from devices by separate queues. Tensors must not change until
     * dcp_future_wait_staged() returns; call it right before the optimizer's step. */
    DCP_STAGING_OVERLAPPED = 2
} dcp_staging_kind;

/** What a save does when the previous one in its chain has not ended. */
typedef enum dcp_when_busy {
    DCP_BUSY_WAIT = 0,  /**< waits; DCP_ERR_TIMEOUT if that one does not end in time */
    DCP_BUSY_REFUSE = 1 /**< DCP_ERR_STATE, on all ranks if any rank is busy */
} dcp_when_busy;

/**
 * A custom stager (PyTorch's AsyncStager): makes a copy of a state, which training does not
 * change. Functions return DCP_OK, or a failure that ends the save on every rank.
 */
typedef struct dcp_stager {
    size_t size_of; /**< sizeof(dcp_stager), so that the struct can grow */

    /** Fills @p staged, an empty dict, with what is to be saved. The memory of its tensors stays
     * until `release`. May continue in the background if there is a `synchronize`. */
    dcp_status (*stage)(void *context, const dcp_state *state, dcp_state *staged);
    /** Optional. Waits for what `stage` began. */
    dcp_status (*synchronize)(void *context);
    /** Whether `synchronize` is called right away, before dcp_save_async() returns
     * (should_synchronize_after_execute), as it is with dcp_save_options::check_replicas; else by
     * dcp_future_wait_staged() and, in any case, before the copy is written. */
    bool synchronize_at_once;
    /** Optional. The copy is no longer needed. */
    void (*release)(void *context);

    void *context; /**< for the functions; belongs to the caller */
} dcp_stager;

/** Options of a chain. All zero is the sensible default. Every rank must pass the same values. */
typedef struct dcp_save_chain_options {
    dcp_group *group; /**< the ranks that save together, as in the options of each save; borrowed
                         until the chain is freed */
    double timeout_seconds; /**< deadline of waits for other ranks while the chain is made and
                               while a save begins, and for the previous save; 0 means 1800 */

    dcp_staging_kind staging;
    /** The most bytes of staging memory of this rank, at least 256 KiB; 0: only the `memory_limit`
     * of a save applies, which covers everything together. With a limit the tensors are staged in
     * waves: each wave waits until the one before it is written, and dcp_future_wait_staged() waits
     * for all of them. */
    uint64_t staging_limit;
    int32_t staging_threads;  /**< threads that copy; 0: up to 4, depending on the size */
    const dcp_stager *stager; /**< replaces all of the above; copied; NULL: none */
    /** For debugging: if tensors changed before staging was complete, the save fails with
     * DCP_ERR_STATE and their names. Costs two passes over the state. */
    bool detect_changes;

    dcp_when_busy when_busy;

    /** Further attempts after a failure, from the same copy; not with a staging limit. Failures
     * that are tried again are DCP_ERR_IO, DCP_ERR_NO_SPACE, DCP_ERR_NOT_FOUND and, while writing,
     * DCP_ERR_NO_MEMORY. They include a directory that cannot be made or opened, or has no room:
     * then dcp_save_async() succeeds on all ranks, and the future has the result of the attempts.
     * Failures that would come again are returned at once: a wrong state, wrong options, a
     * checkpoint that must not be overwritten.
     *
     * Each attempt opens the directory anew on all ranks, at the absolute path that the path meant
     * when the call was made: the directory of the attempt before may be gone, or its mount may be
     * broken. */
    int32_t retries;
    double retry_seconds; /**< wait before the first retry; doubles each time; 0 means 1 */
    /** A directory that gets the checkpoint, under the path's last name, when all attempts have
     * failed for such a reason; copied; NULL: none. If that fails too, the message names both
     * places. A relative path is resolved when the save begins. The storage writer is chosen anew
     * (dcp_save_options::storage_writers). */
    const char *fallback_path;
    bool log_failures; /**< a failure that no call has returned is logged, instead of being
                          returned by the next save of the chain */

    double exit_seconds; /**< how long freeing a future or the chain, or the end of the program,
                            waits for a save that is under way; 0 means 1800 */

    /** Optional. Called on each rank, by the thread that saves, when an attempt has failed with
     * DCP_ERR_NO_SPACE; may remove something, or wait for a removal. If it returns true on any
     * rank, there is another attempt at once, which `retries` do not count. Ranks wait for each
     * other, as long as the `timeout_seconds` of the save. Needs the whole copy, as `retries`. */
    bool (*make_room)(void *context);
    void *make_room_context;
} dcp_save_chain_options;

/** A chain of saves; for one thread at a time. dcp_save_chain is declared in save.h. */

/**
 * Makes a chain. Collective over the group, which is duplicated, so that the commit can run in the
 * background; where a group cannot be (see dcp_group_duplicate()), the commit runs when the
 * future is next waited for or polled, on that thread.
 * @param chain owned by the caller.
 */
DCP_API dcp_status dcp_save_chain_new_sized(const dcp_save_chain_options *options,
                                            size_t options_size, dcp_save_chain **chain);

static inline dcp_status dcp_save_chain_new(const dcp_save_chain_options *options,
                                            dcp_save_chain **chain)
{
    return dcp_save_chain_new_sized(options, sizeof *options, chain);
}

/** @return whether commits of the chain's saves run in the background. */
DCP_API bool dcp_save_chain_in_background(const dcp_save_chain *chain);

/**
 * Makes staging memory before the first save, which otherwise takes the time for it.
 * @param bytes `staging_memory`, as dcp_save_estimate() says for a save with the chain.
 * @param device whose copies the memory is for, with #DCP_STAGING_PINNED or
 * #DCP_STAGING_OVERLAPPED; NULL: host memory only.
 */
DCP_API dcp_status dcp_save_chain_reserve(dcp_save_chain *chain, uint64_t bytes,
                                          const dcp_device *device);

/** Waits, as `exit_seconds` says, for the save that is under way, and frees the chain. Futures may
 * outlive it. Without background commits this is collective, if a save is under way. */
DCP_API void dcp_save_chain_free(dcp_save_chain *chain);

/** A save that is under way. Any thread may query it; one at a time may wait for it. */
typedef struct dcp_future dcp_future;

/** The state of a save. */
typedef enum dcp_future_state {
    DCP_FUTURE_STAGING = 0, /**< the tensors must stay as they are */
    DCP_FUTURE_WRITING = 1,
    DCP_FUTURE_WRITTEN = 2, /**< commits when the future is waited for or polled */
    DCP_FUTURE_DONE = 3,    /**< the checkpoint is visible */
    DCP_FUTURE_FAILED = 4
} dcp_future_state;

/**
 * Begins to save @p state as the checkpoint @p path. Collective. Options are those of dcp_save();
 * `chain` names the chain, and without one the save has one of its own, with default options. The
 * tree may be changed and freed once this returns; the memory of its tensors as
 * dcp_staging_kind says. The process may change its directory, too: relative paths are resolved
 * during this call, for all attempts.
 *
 * With a planner or a storage writer the whole state is copied as soon as the planner has been set
 * up: the state that set_up_planner passes to dcp_save_default_set_up_planner(), which is the
 * caller's or one that the planner has made. It may be freed when the caller's may. Hooks up to
 * finish_plan are called before this returns. Afterwards threads of the library call resolve_data
 * (for tensors also lookup_object and transform_object) and the storage writer's write_data and
 * finish. With a custom stager the planner is set up with the stager's copy.
 *
 * For another attempt, in the same place or at `fallback_path`, threads of the library call all
 * hooks again in their order, except set_up_planner. reset() gets the id of the new place, and the
 * first of `storage_writers` that takes that id is used.
 *
 * `memory_limit` covers staging memory too, including the memory that the chain has kept. Staging
 * gets what the limit leaves beside the smallest amount for writing, but not more than the state
 * needs. Kept memory that is too large is replaced by less. With retries, a fallback path or hooks,
 * the limit must leave room for a copy of the whole state. Memory of a custom stager is not
 * counted.
 *
 * `figures` are not filled in by this call: see dcp_future_figures(). `progress` is called on
 * threads of the library. `info` is copied.
 *
 * @param future owned by the caller; NULL on failure.
 * Errors: those of dcp_save() up to the end of planning, except those that retries or a fallback
 * path are for; DCP_ERR_UNSUPPORTED (a planner or a storage writer with too small a staging limit);
 * the failure of the previous save, if no call has returned it yet and the chain does not log
 * it.
 */
DCP_API dcp_status dcp_save_async_sized(dcp_state *state, const char *path,
                                        const dcp_save_options *options, size_t options_size,
                                        dcp_future **future);

static inline dcp_status dcp_save_async(dcp_state *state, const char *path,
                                        const dcp_save_options *options, dcp_future **future)
{
    return dcp_save_async_sized(state, path, options, sizeof *options, future);
}

/** Waits until tensors may change. DCP_ERR_TIMEOUT: not yet; call it again.
 * @param timeout_seconds 0: does not wait; negative: no limit. */
DCP_API dcp_status dcp_future_wait_staged(dcp_future *future, double timeout_seconds);

/** Waits until the checkpoint is durable and visible, and returns the result of the save, the same
 * on every rank. DCP_ERR_TIMEOUT: it has not ended. Without background commits this is collective.
 * If a rank does not make the call within the `timeout_seconds` of the save, the save fails on the
 * others: with DCP_ERR_TIMEOUT too, but polling gives DCP_FUTURE_FAILED.
 * @param timeout_seconds as for dcp_future_wait_staged(). */
DCP_API dcp_status dcp_future_wait(dcp_future *future, double timeout_seconds);

/** Returns the state of the save, without waiting. Without background commits this is collective,
 * and commits when all ranks have written. */
DCP_API dcp_future_state dcp_future_poll(dcp_future *future);

/** Called when a save has ended.
 * @param status as dcp_future_wait() returns it.
 * @param message as dcp_future_message() returns it; valid until the function returns. */
typedef void (*dcp_future_done_function)(void *context, dcp_status status, const char *message);

/**
 * Has @p function called when the save has ended: once, whether it has succeeded or failed. Several
 * functions may be added, and are called in their order.
 *
 * It is called by the thread of the library that ends the save, or by this call if the save has
 * ended. Without background commits it is called by the call that completes the save:
 * dcp_future_wait(), dcp_future_poll(), dcp_future_free(), dcp_finish_saves(), freeing the chain,
 * or beginning its next save. dcp_future_free() and the end of the program wait for functions that
 * are running. If one of them stops waiting for the save, the function is still called when the
 * save ends: @p context must live until then.
 *
 * The function may call any function of this future, dcp_future_free() among them unless the caller
 * frees it as well; it has ended then. It must not begin a save of the same chain, nor free the
 * chain, and should return soon: the thread of the library has a stack of 512 KiB. A failure that
 * was passed to a function is not returned by the next save of the chain. Errors: DCP_ERR_ARGUMENT,
 * DCP_ERR_NO_MEMORY; then the function is not called.
 */
DCP_API dcp_status dcp_future_on_done(dcp_future *future, dcp_future_done_function function,
                                      void *context);

/** @return the error message of a save that has failed, "" of others; owned by the future. */
DCP_API const char *dcp_future_message(dcp_future *future);

/** Copies the figures so far. @param figures with size_of set. */
DCP_API dcp_status dcp_future_figures(dcp_future *future, dcp_figures *figures);

/** Bytes written so far, and to be written, by this rank. */
DCP_API void dcp_future_progress(dcp_future *future, uint64_t *done, uint64_t *total);

/** Asks the save to end with DCP_ERR_CANCELLED on all ranks, unless it is committing already. */
DCP_API void dcp_future_cancel(dcp_future *future);

/** Waits, as the chain's `exit_seconds` says, for the save to end, and frees the future. NULL is
 * allowed. A save that does not end in time continues, and keeps what it needs. Without background
 * commits this is collective, as waiting is. */
DCP_API void dcp_future_free(dcp_future *future);

/**
 * Waits for all saves of this process that are under way, each as its chain's `exit_seconds` says.
 * Collective without background commits. The end of the program waits by itself for those that
 * commit in the background; call this before what they need is gone: before groups are freed.
 * MPI_Finalize() calls it for groups of libdcp_mpi.
 */
DCP_API void dcp_finish_saves(void);

#ifdef __cplusplus
}
#endif

#endif
