/* SPDX-License-Identifier: BSD-3-Clause */
/* Our own queues beside the callers' queues of their devices. */
#ifndef DEVICE_STAGING_QUEUES_H
#define DEVICE_STAGING_QUEUES_H

#include "device/staging_pieces.h"

struct staging_queues {
    struct staging_own_queue {
        dcp_device theirs;
        dcp_device ours; /* the same as theirs if the device cannot overlap */
        void *event;     /* recorded behind the work in theirs */
    } * items;
    size_t count;
};

/* Opens one for each of the callers' queues that sources are ordered by; sets the sources'
 * `queue`. */
dcp_status staging_queues_open(struct staging_queues *queues, struct staging_pieces *pieces);
/* Waits for all work in our queues. */
void staging_queues_wait(struct staging_queues *queues);
/* Frees the pieces' events as well. */
void staging_queues_close(struct staging_queues *queues, struct staging_pieces *pieces);
dcp_device staging_queue(const struct staging_queues *queues, size_t index);
/* NULL: all sources are in host memory. */
const dcp_device *staging_first_device(const struct staging_queues *queues);
/* Makes the event if it is NULL, and records it. */
dcp_status staging_event_record(const dcp_device *device, void **event);

#endif
