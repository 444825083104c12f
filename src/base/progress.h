/* SPDX-License-Identifier: BSD-3-Clause */
/* Reports the progress of a save or load to the caller's function, from any thread. */
#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H

#include <pthread.h>
#include <stdatomic.h>

#include "dcp/progress.h"
#include "dcp/status.h"

struct progress {
    dcp_progress_function function; /* NULL: progress is not reported */
    void *context;
    atomic_uint_fast64_t done;
    atomic_bool cancelled;
    _Atomic(const char *) cancelled_by; /* for the message; NULL: the caller's progress function */
    pthread_mutex_t lock;               /* guards all below */
    dcp_progress reported;
    int64_t reported_ns;
};

void progress_init(struct progress *progress, dcp_progress_function function, void *context);
void progress_free(struct progress *progress);
/* Begins a phase in which `total` bytes will be moved. No other thread may add bytes meanwhile.
 * Returns DCP_ERR_CANCELLED after the function has asked to cancel. */
dcp_status progress_enter(struct progress *progress, dcp_phase phase, uint64_t total);
/* Adds bytes that are done. progress may be NULL. Returns as above. */
dcp_status progress_add(struct progress *progress, uint64_t bytes);

/* A part of the total whose exact size is not known while its bytes are counted: never reports more
 * than the part, and reports all of it at the end. */
struct progress_part {
    struct progress *progress; /* NULL: progress is not reported */
    uint64_t left;
};

dcp_status progress_part_add(struct progress_part *part, uint64_t bytes);
dcp_status progress_part_end(struct progress_part *part);

#endif
