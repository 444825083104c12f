/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/run_background.h"

#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

static bool is_ending(void *context)
{
    struct run_background *background = context;
    pthread_mutex_lock(&background->mutex);
    bool ending = background->ending;
    pthread_mutex_unlock(&background->mutex);
    return ending;
}

/* False: it is time to end. */
static bool wait_for_work(struct run_background *background, int64_t *bound)
{
    pthread_mutex_lock(&background->mutex);
    while (!background->wanted && !background->ending)
        pthread_cond_wait(&background->changed, &background->mutex);
    bool goes_on = !background->ending;
    background->wanted = false;
    background->busy = goes_on;
    *bound = background->bound;
    pthread_mutex_unlock(&background->mutex);
    return goes_on;
}

static void end_work(struct run_background *background)
{
    pthread_mutex_lock(&background->mutex);
    background->busy = false;
    pthread_cond_broadcast(&background->changed);
    pthread_mutex_unlock(&background->mutex);
}

static void count_removed(void *context, const char *name, dcp_run_verdict verdict, const char *why)
{
    struct run_background *background = context;
    (void)name;
    (void)why;
    if (verdict != DCP_RUN_REMOVED)
        return;
    pthread_mutex_lock(&background->mutex);
    background->removed++;
    pthread_cond_broadcast(&background->changed);
    pthread_mutex_unlock(&background->mutex);
}

/* Failures are no failures of a save: the next commit tries again. */
static void *work(void *argument)
{
    struct run_background *background = argument;
    dcp_run_prune_options prune = background->prune;
    prune.has_bound = true;
    prune.stopped = is_ending;
    prune.stopped_context = background;
    prune.verdict = count_removed;
    prune.verdict_context = background;
    while (wait_for_work(background, &prune.bound)) {
        if (dcp_run_prune(background->root, &prune, NULL) != DCP_OK)
            log_line(DCP_LOG_WARNING, "%s: old checkpoints were not all removed: %s",
                     background->root, dcp_error_message());
        end_work(background);
    }
    return NULL;
}

dcp_status run_background_init(struct run_background *background, const char *root,
                               const dcp_run_prune_options *prune)
{
    pthread_condattr_t monotonic;
    *background = (struct run_background){.root = root, .prune = *prune};
    if (pthread_condattr_init(&monotonic) != 0)
        return error_no_memory(0, "pruning in the background");
    bool good = pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0 &&
                pthread_cond_init(&background->changed, &monotonic) == 0;
    pthread_condattr_destroy(&monotonic);
    if (!good)
        return error_no_memory(0, "pruning in the background");
    if (pthread_mutex_init(&background->mutex, NULL) != 0) {
        pthread_cond_destroy(&background->changed);
        return error_no_memory(0, "pruning in the background");
    }
    background->made = true;
    return DCP_OK;
}

void run_background_post(struct run_background *background, int64_t step)
{
    if (!background->made)
        return;
    pthread_mutex_lock(&background->mutex);
    background->wanted = true;
    background->bound = step;
    int code = 0;
    if (!background->started) {
        code = thread_start(&background->thread, work, background);
        background->started = code == 0;
    }
    pthread_cond_broadcast(&background->changed);
    pthread_mutex_unlock(&background->mutex);
    if (code != 0)
        log_line(DCP_LOG_WARNING, "%s: no thread to remove old checkpoints: %s", background->root,
                 strerror(code));
}

void run_background_again(struct run_background *background)
{
    if (!background->made)
        return;
    pthread_mutex_lock(&background->mutex);
    background->wanted = background->started;
    pthread_cond_broadcast(&background->changed);
    pthread_mutex_unlock(&background->mutex);
}

void run_background_wait(struct run_background *background, double seconds)
{
    const struct timespec until = deadline_timespec(deadline_after(seconds));
    int code = 0;
    if (!background->made)
        return;
    pthread_mutex_lock(&background->mutex);
    while (background->started && (background->wanted || background->busy) && code == 0)
        code = pthread_cond_timedwait(&background->changed, &background->mutex, &until);
    pthread_mutex_unlock(&background->mutex);
}

bool run_background_has_removed(struct run_background *background, uint64_t *count, double seconds)
{
    const struct timespec until = deadline_timespec(deadline_after(seconds));
    int code = 0;
    if (!background->made)
        return false;
    pthread_mutex_lock(&background->mutex);
    while (background->removed == *count && background->started &&
           (background->wanted || background->busy) && code == 0)
        code = pthread_cond_timedwait(&background->changed, &background->mutex, &until);
    bool more = background->removed != *count;
    *count = background->removed;
    pthread_mutex_unlock(&background->mutex);
    return more;
}

void run_background_end(struct run_background *background)
{
    if (!background->made)
        return;
    pthread_mutex_lock(&background->mutex);
    background->ending = true;
    pthread_cond_broadcast(&background->changed);
    pthread_mutex_unlock(&background->mutex);
    if (background->started)
        thread_join(&background->thread);
    pthread_cond_destroy(&background->changed);
    pthread_mutex_destroy(&background->mutex);
    background->made = false;
}
