/* SPDX-License-Identifier: BSD-3-Clause */
/* At exit, the program waits for saves under way. A save that is interrupted leaves no damage, but
 * saves that were started should not be lost. */
#include <stdlib.h>

#include "checkpoint/async/async.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static dcp_future *first;
static bool registered;

/* Takes a reference unless the future is being freed. With the mutex held, which prevents
 * freeing. */
static bool refer(dcp_future *future)
{
    int references = atomic_load(&future->references);
    while (references > 0)
        if (atomic_compare_exchange_weak(&future->references, &references, references + 1))
            return true;
    return false;
}

/* Commits that need the caller's thread need all ranks as well, which cannot be expected at
 * exit. */
static void finish_all(bool collective)
{
    for (;;) {
        pthread_mutex_lock(&mutex);
        dcp_future *future = first;
        bool ours = future && refer(future);
        if (future) {
            first = future->next;
            if (first)
                first->previous = NULL;
            future->next = future->previous = NULL;
        }
        pthread_mutex_unlock(&mutex);
        if (!future)
            return;
        if (!ours)
            continue;
        if (future->in_background || collective)
            future_await_end(future, future->chain->options.exit_seconds);
        future_release(future);
    }
}

void dcp_finish_saves(void)
{
    finish_all(true);
}

static void at_exit(void)
{
    finish_all(false);
}

void exit_add(dcp_future *future)
{
    pthread_mutex_lock(&mutex);
    if (!registered)
        registered = atexit(at_exit) == 0;
    future->next = first;
    if (first)
        first->previous = future;
    first = future;
    pthread_mutex_unlock(&mutex);
}

void exit_remove(dcp_future *future)
{
    pthread_mutex_lock(&mutex);
    if (future->previous)
        future->previous->next = future->next;
    else if (first == future)
        first = future->next;
    if (future->next)
        future->next->previous = future->previous;
    future->next = future->previous = NULL;
    pthread_mutex_unlock(&mutex);
}
