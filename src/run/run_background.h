/* SPDX-License-Identifier: BSD-3-Clause */
/* Pruning behind training, by a thread that is started when there is something to do. */
#ifndef RUN_RUN_BACKGROUND_H
#define RUN_RUN_BACKGROUND_H

#include <pthread.h>
#include <stdbool.h>

#include "base/thread.h"
#include "dcp/run_prune.h"

struct run_background {
    const char *root;
    dcp_run_prune_options prune; /* but for the bound */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct thread thread;
    bool made, started;
    /* Under the mutex. */
    bool wanted, busy, ending;
    int64_t bound;
    uint64_t removed; /* checkpoints, so far */
};

dcp_status run_background_init(struct run_background *background, const char *root,
                               const dcp_run_prune_options *prune);
/* A step was committed. Returns at once; calls that come meanwhile become one. */
void run_background_post(struct run_background *background, int64_t step);
/* What could not be removed when it was tried last may be by now. By any thread. */
void run_background_again(struct run_background *background);
/* Waits until all that was committed is dealt with, but no longer than that. */
void run_background_wait(struct run_background *background, double seconds);
/* Whether more was removed than *count, which becomes what was; waits for the next removal while
 * there is something to do, but no longer than that. By any thread. */
bool run_background_has_removed(struct run_background *background, uint64_t *count, double seconds);
/* Waits for the removal that is going on, and begins no other. */
void run_background_end(struct run_background *background);

#endif
