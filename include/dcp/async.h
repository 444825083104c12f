/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file async.h
 * @brief Saving while training goes on.
 *
 * dcp_save_async() plans the save, copies the state to host memory (staging), and returns; threads
 * of the library write the copy and make the checkpoint visible. A future stands for what is to
 * come.
 *
 * Saves that follow each other share a chain: it keeps the staging memory from one to the next, and
 * sees to it that there is one at a time, so that two copies of the state are never in memory.
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
    /** Copied behind the caller's back, devices' memory by queues of their own: the tensors must
     * stay as they are until dcp_future_wait_staged() returns, which belongs right before the
     * optimizer's step. */
    DCP_STAGING_OVERLAPPED = 2
} dcp_staging_kind;

/** What a save does when the one before it in its chain is not over. */
typedef enum dcp_when_busy {
    DCP_BUSY_WAIT = 0,  /**< waits for it; DCP_ERR_TIMEOUT if it does not end in time */
    DCP_BUSY_REFUSE = 1 /**< DCP_ERR_STATE, on all ranks if any rank is busy */
} dcp_when_busy;

/**
 * A custom stager (PyTorch's AsyncStager): makes a copy of a state that training does not
 * change. Functions return DCP_OK or a failure, which is the save's on every rank.
 */
typedef struct dcp_stager {
    size_t size_of; /**< sizeof(dcp_stager), so that the struct can grow */

    /** Fills @p staged, an empty dict, with what is to be saved. The memory of its tensors stays
     * until `release`. May go on in the background if `synchronize` is there. */
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
    double timeout_seconds; /**< of waits for other ranks while the chain is made and while a save
                               begins, and of a save for the one before it; 0 means 1800 */

    dcp_staging_kind staging;
    /** Bytes of staging memory of this rank, at least 256 KiB; 0: as many as it takes, within the
     * `memory_limit` of a save, which is for everything together. Under a limit staging proceeds in
     * waves, as writing makes room, and waiting for it waits for that. */
    uint64_t staging_limit;
    int32_t staging_threads;  /**< that copy; 0: up to 4, as is worth it */
    const dcp_stager *stager; /**< in the place of all of the above; copied; NULL: none */
    /** For finding mistakes: tensors that changed before staging was over make the save fail, with
     * DCP_ERR_STATE and their names. Costs two passes over the state. */
    bool detect_changes;

    dcp_when_busy when_busy;

    /** Further attempts after one that failed, from the same copy; not under a staging limit. For
     * failures of the place and of the moment: DCP_ERR_IO, DCP_ERR_NO_SPACE, DCP_ERR_NOT_FOUND and,
     * once there is something to write, DCP_ERR_NO_MEMORY. That a directory cannot be made or
     * opened, or has no room, which is found before anything is written, is among them: then
     * dcp_save_async() succeeds on all ranks, and the future tells how the attempts end. What is
     * the matter with the state or the options, or with a checkpoint that is not to be overwritten,
     * would come again, and is returned at once.
     *
     * Each attempt opens the directory anew, on all ranks, where the path led to when the call was
     * made: the one that the attempt before had open may be gone, as one that it has made is, or
     * its mount may be broken. So it is in what is there by then. */
    int32_t retries;
    double retry_seconds; /**< before the first of them, twice as long before each next; 0 is 1 */
    /** A directory in which a checkpoint of the path's last name is made when all attempts have
     * failed for such a reason; copied; NULL: none. If that fails as well, the message names both
     * places. As the path of a save, it means what it means when the save begins. The storage
     * writer is chosen anew (dcp_save_options::storage_writers). */
    const char *fallback_path;
    bool log_failures; /**< a failure that nobody waited for is logged, and is not what the next
                          save of the chain returns */

    double exit_seconds; /**< how long freeing a future or the chain, or the end of the program,
                            waits for what is under way; 0 means 1800 */
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
 * Makes staging memory before the first save, which pays for it otherwise.
 * @param bytes `staging_memory`, as dcp_save_estimate() says for a save with the chain.
 * @param device whose copies the memory is for, with #DCP_STAGING_PINNED or
 * #DCP_STAGING_OVERLAPPED; NULL: host memory only.
 */
DCP_API dcp_status dcp_save_chain_reserve(dcp_save_chain *chain, uint64_t bytes,
                                          const dcp_device *device);

/** Waits, as `exit_seconds` says, for the save that is under way, and frees the chain. Futures may
 * outlive it. Without background commits this is collective, if a save is under way. */
DCP_API void dcp_save_chain_free(dcp_save_chain *chain);

/** A save on its way. Any thread may ask; one at a time may wait. */
typedef struct dcp_future dcp_future;

/** How far a save is. */
typedef enum dcp_future_state {
    DCP_FUTURE_STAGING = 0, /**< the tensors must stay as they are */
    DCP_FUTURE_WRITING = 1,
    DCP_FUTURE_WRITTEN = 2, /**< waits to be waited for or polled, so that it can commit */
    DCP_FUTURE_DONE = 3,    /**< the checkpoint is visible */
    DCP_FUTURE_FAILED = 4
} dcp_future_state;

/**
 * Begins to save @p state as the checkpoint @p path. Collective. Options are those of dcp_save();
 * `chain` names the chain, and without one the save has one of its own, with default options. The
 * tree may be changed and freed once this returns; the memory of its tensors as
 * dcp_staging_kind says. The process may change its directory as well: relative paths mean what
 * they mean during this call, in all attempts.
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
 * `memory_limit` covers staging memory too, including what the chain has kept. Staging gets what
 * remains after the minimum for writing, or all that the state needs if there is that much. If the
 * kept memory is too large, it is made smaller. With retries, a fallback path or hooks, staging
 * needs room for the whole state. What a custom stager takes is not counted.
 *
 * `figures` are not filled in by this call: see dcp_future_figures(). `progress` is called on
 * threads of the library. `info` is copied.
 *
 * @param future owned by the caller; NULL on failure.
 * Errors: those of dcp_save() up to the end of planning, but for failures of the place where the
 * chain has retries or a fallback path; DCP_ERR_UNSUPPORTED (a planner or a storage writer with too
 * small a staging limit); the failure of the save before it, if nobody has heard of that yet and
 * the chain does not log it.
 */
DCP_API dcp_status dcp_save_async_sized(dcp_state *state, const char *path,
                                        const dcp_save_options *options, size_t options_size,
                                        dcp_future **future);

static inline dcp_status dcp_save_async(dcp_state *state, const char *path,
                                        const dcp_save_options *options, dcp_future **future)
{
    return dcp_save_async_sized(state, path, options, sizeof *options, future);
}

/** Waits until tensors may change. DCP_ERR_TIMEOUT: not yet; it can be asked again.
 * @param timeout_seconds 0: does not wait; negative: as long as it takes. */
DCP_API dcp_status dcp_future_wait_staged(dcp_future *future, double timeout_seconds);

/** Waits until the checkpoint is durable and visible, and says how the save ended, the same on
 * every rank. DCP_ERR_TIMEOUT: it has not ended. Without background commits this is collective, and
 * a rank that does not come within the `timeout_seconds` of the save makes it fail on the others,
 * with DCP_ERR_TIMEOUT as well and with DCP_FUTURE_FAILED when polled.
 * @param timeout_seconds as for dcp_future_wait_staged(). */
DCP_API dcp_status dcp_future_wait(dcp_future *future, double timeout_seconds);

/** Says how far the save is, without waiting for it. Without background commits this is collective,
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
 * are running. Where one of them gives up waiting for the save, the function is still called when
 * the save ends, so that @p context must live as long.
 *
 * The function may call any function of this future, dcp_future_free() among them unless the caller
 * frees it as well; it has ended then. It must not begin a save of the same chain, nor free the
 * chain, and should return soon: the thread of the library has a stack of 512 KiB. A failure that a
 * function has been given counts as noticed: the next save of the chain does not return it.
 * Errors: DCP_ERR_ARGUMENT, DCP_ERR_NO_MEMORY; then the function is not called.
 */
DCP_API dcp_status dcp_future_on_done(dcp_future *future, dcp_future_done_function function,
                                      void *context);

/** @return the error message of a save that has failed, "" of others; owned by the future. */
DCP_API const char *dcp_future_message(dcp_future *future);

/** Copies the figures so far. @param figures with size_of set. */
DCP_API dcp_status dcp_future_figures(dcp_future *future, dcp_figures *figures);

/** Bytes written so far, and to be written, by this rank. */
DCP_API void dcp_future_progress(dcp_future *future, uint64_t *done, uint64_t *total);

/** Asks the save to end with DCP_ERR_CANCELLED on all ranks, if it has not come to its commit. */
DCP_API void dcp_future_cancel(dcp_future *future);

/** Waits, as the chain's `exit_seconds` says, for the save to end, and frees the future. NULL is
 * allowed. A save that does not end in time goes on, and what it needs stays. Without background
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
