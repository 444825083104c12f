/* SPDX-License-Identifier: BSD-3-Clause */
/* The coordinator writes the metadata of a large checkpoint beside its shards, whose files would
 * otherwise be the last ones to be done. */
#ifndef CHECKPOINT_SAVE_SAVE_PREPARING_H
#define CHECKPOINT_SAVE_SAVE_PREPARING_H

#include "base/error.h"
#include "base/thread.h"
#include "dcp/status.h"

struct dcp_saving;

struct save_preparing {
    struct dcp_saving *saving;
    struct thread thread;
    bool beside; /* the thread runs */
    dcp_status status;
    struct saved_error error;
};

/* Prepares the commit at once, or begins to. Places must be known. *preparing must stay where it
 * is until its end, which must follow whatever this returns. */
dcp_status save_preparing_begin(struct save_preparing *preparing, struct dcp_saving *saving);
/* Waits for it. status: of what was done meanwhile, whose failure comes first. */
dcp_status save_preparing_end(struct save_preparing *preparing, dcp_status status);

#endif
