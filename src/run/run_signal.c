/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/run_signal.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "base/error.h"

static const int watched[] = {SIGTERM, SIGUSR1};
enum { WATCHED_COUNT = sizeof watched / sizeof *watched };

static atomic_int seen; /* lock-free: the handler writes it */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int watchers;
static struct sigaction before[WATCHED_COUNT];

static void note_signal(int number)
{
    atomic_store_explicit(&seen, number, memory_order_relaxed);
}

static void restore(int count)
{
    for (int i = 0; i < count; i++)
        sigaction(watched[i], &before[i], NULL);
}

static dcp_status install(void)
{
    struct sigaction action = {.sa_handler = note_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < WATCHED_COUNT; i++) {
        if (sigaction(watched[i], &action, &before[i]) == 0)
            continue;
        dcp_status status = dcp_error_set(DCP_ERR_IO, "signal %d cannot be watched: %s", watched[i],
                                          strerror(errno));
        restore(i);
        return status;
    }
    return DCP_OK;
}

dcp_status run_signal_watch(void)
{
    dcp_status status = DCP_OK;
    pthread_mutex_lock(&mutex);
    if (watchers == 0) {
        atomic_store(&seen, 0);
        status = install();
    }
    watchers += status == DCP_OK;
    pthread_mutex_unlock(&mutex);
    return status;
}

void run_signal_leave(void)
{
    pthread_mutex_lock(&mutex);
    if (--watchers == 0)
        restore(WATCHED_COUNT);
    pthread_mutex_unlock(&mutex);
}

int run_signal_seen(void)
{
    return atomic_load_explicit(&seen, memory_order_relaxed);
}
