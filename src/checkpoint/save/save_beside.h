/* SPDX-License-Identifier: BSD-3-Clause */
/* Steps that the coordinator of a large save takes beside others, on a thread: beginning the
 * session, which waits for the disk, beside planning; and preparing the commit beside writing its
 * shards, whose files would otherwise be the last ones to be done. */
#ifndef CHECKPOINT_SAVE_SAVE_BESIDE_H
#define CHECKPOINT_SAVE_SAVE_BESIDE_H

#include "base/error.h"
#include "base/thread.h"
#include "dcp/status.h"

struct dcp_saving;
typedef dcp_status (*save_beside_step)(struct dcp_saving *saving);

struct save_beside {
    struct dcp_saving *saving;
    save_beside_step step;
    struct thread thread;
    bool runs; /* the thread does, and must be joined */
    dcp_status status;
    struct saved_error error;
};

/* Starts a thread that takes the step; if there is none, the step is still to be taken. *beside
 * must stay where it is until it is joined. */
void save_beside_start(struct save_beside *beside, struct dcp_saving *saving,
                       save_beside_step step);
/* What the step returned, with its message. */
dcp_status save_beside_join(struct save_beside *beside);
/* Joins it if it runs. status: of what was done meanwhile, whose failure comes first. */
dcp_status save_beside_end(struct save_beside *beside, dcp_status status);

/* Whether this rank begins the session so, and prepares the commit: then the memory of that is
 * taken beside that of planning, and of writing. If every rank plans alone, the metadata may be
 * made there, too, just before: ranks need only their own orders to write. */
bool save_begins_beside(const struct dcp_saving *saving);
bool save_describes_beside(const struct dcp_saving *saving);
bool save_prepares_beside(const struct dcp_saving *saving);

#endif
