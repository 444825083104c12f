/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/progress.h"

#include "base/clock.h"
#include "base/error.h"

#define INTERVAL_NS INT64_C(10000000)

void progress_init(struct progress *progress, dcp_progress_function function, void *context)
{
    *progress = (struct progress){.function = function, .context = context};
    pthread_mutex_init(&progress->lock, NULL);
}

void progress_free(struct progress *progress)
{
    pthread_mutex_destroy(&progress->lock);
}

static dcp_status status_of(struct progress *progress)
{
    if (!atomic_load_explicit(&progress->cancelled, memory_order_relaxed))
        return DCP_OK;
    const char *by = atomic_load_explicit(&progress->cancelled_by, memory_order_relaxed);
    return dcp_error_set(DCP_ERR_CANCELLED, "cancelled by %s",
                         by ? by : "the caller's progress function");
}

/* The lock is held. */
static void report(struct progress *progress, int64_t now)
{
    progress->reported.bytes_done = atomic_load_explicit(&progress->done, memory_order_relaxed);
    progress->reported_ns = now;
    if (!atomic_load_explicit(&progress->cancelled, memory_order_relaxed) &&
        !progress->function(progress->context, &progress->reported))
        atomic_store_explicit(&progress->cancelled, true, memory_order_relaxed);
}

dcp_status progress_enter(struct progress *progress, dcp_phase phase, uint64_t total)
{
    if (!progress->function)
        return DCP_OK;
    pthread_mutex_lock(&progress->lock);
    progress->reported.phase = phase;
    progress->reported.bytes_total = total;
    report(progress, clock_monotonic_ns());
    pthread_mutex_unlock(&progress->lock);
    return status_of(progress);
}

dcp_status progress_add(struct progress *progress, uint64_t bytes)
{
    if (!progress || !progress->function)
        return DCP_OK;
    atomic_fetch_add_explicit(&progress->done, bytes, memory_order_relaxed);
    /* If another thread is reporting, skip: the next report includes these bytes. */
    if (pthread_mutex_trylock(&progress->lock) == 0) {
        int64_t now = clock_monotonic_ns();
        if (now - progress->reported_ns >= INTERVAL_NS)
            report(progress, now);
        pthread_mutex_unlock(&progress->lock);
    }
    return status_of(progress);
}

dcp_status progress_part_add(struct progress_part *part, uint64_t bytes)
{
    uint64_t reported = bytes < part->left ? bytes : part->left;
    part->left -= reported;
    return progress_add(part->progress, reported);
}

dcp_status progress_part_end(struct progress_part *part)
{
    return progress_part_add(part, part->left);
}
