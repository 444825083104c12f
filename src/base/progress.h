/* SPDX-License-Identifier: BSD-3-Clause */
/* Telling the caller's function how far a save or load has come, from any of its threads. */
#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H

#include <pthread.h>
#include <stdatomic.h>

#include "dcp/progress.h"
#include "dcp/status.h"

struct progress {
    dcp_progress_function function; /* NULL: nobody listens */
    void *context;
    atomic_uint_fast64_t done;
    atomic_bool cancelled;
    _Atomic(const char *) cancelled_by; /* in words; NULL: the caller's function */
    pthread_mutex_t telling;            /* over what follows */
    dcp_progress told;
    int64_t told_ns;
};

void progress_init(struct progress *progress, dcp_progress_function function, void *context);
void progress_free(struct progress *progress);
/* Begins a phase, in which total bytes are to be moved in all. Not while others add. Returns
 * DCP_ERR_CANCELLED once the function has said so. */
dcp_status progress_enter(struct progress *progress, dcp_phase phase, uint64_t total);
/* So many more bytes are done. progress may be NULL. Returns as above. */
dcp_status progress_add(struct progress *progress, uint64_t bytes);

/* A part of the total whose bytes are only roughly known while they pass by: no more than the part
 * are told, and all of them in the end. */
struct progress_part {
    struct progress *progress; /* NULL: nobody listens */
    uint64_t left;
};

dcp_status progress_part_add(struct progress_part *part, uint64_t bytes);
dcp_status progress_part_end(struct progress_part *part);

#endif
