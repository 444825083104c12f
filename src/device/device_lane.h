/* SPDX-License-Identifier: BSD-3-Clause */
/* A way between a device and host memory beside the caller's own queue: a queue of our own, behind
 * what is in the caller's, and two page-locked buffers, one of which is copied while the other one
 * is worked on. */
#ifndef DEVICE_DEVICE_LANE_H
#define DEVICE_DEVICE_LANE_H

#include <pthread.h>
#include <stddef.h>

#include "dcp/device.h"

/* What a lane takes is twice this. */
#define DEVICE_LANE_BUFFER ((size_t)4 << 20)
/* A lane, without what goes on beside it: elements that are packed or converted take another buffer
 * of that size each. */
#define DEVICE_LANE_MEMORY ((uint64_t)2 * DEVICE_LANE_BUFFER + ((uint64_t)16 << 10))
/* Less is copied at once: nothing would go on meanwhile. */
#define DEVICE_LANE_LEAST ((uint64_t)1 << 20)

/* For one thread at a time. */
struct device_lane;

/* For any thread. */
struct device_lanes {
    pthread_mutex_t mutex;
    struct device_lane *first; /* those that nobody uses at the moment */
    size_t count;              /* of all */
    size_t most;               /* that there may be */
};

void device_lanes_init(struct device_lanes *lanes, size_t most);
/* While nobody uses one: there may be so many from here on. */
void device_lanes_allow(struct device_lanes *lanes, size_t most);
/* Frees the lanes that are there; those in use may be given back afterwards. */
void device_lanes_clear(struct device_lanes *lanes);
void device_lanes_free(struct device_lanes *lanes);

/* Whether copies of so many bytes use a lane if there may be one. */
bool device_lane_is_worth_it(const dcp_device *device, uint64_t bytes);
/* A lane for copies of so many bytes from or to the device, which begin when what is in the
 * device's queue now is done. *lane is NULL if copies had better be waited for: it is host memory,
 * a device that cannot overlap, little to copy, or the operation's memory is limited. lanes: may be
 * NULL, which gives none. */
dcp_status device_lane_take(struct device_lanes *lanes, const dcp_device *device, uint64_t bytes,
                            struct device_lane **lane);
/* Waits for what may be under way. NULL is fine. */
void device_lane_give(struct device_lanes *lanes, struct device_lane *lane);

/* The device with the lane's queue, for copies from and to its buffers. */
const dcp_device *device_lane_queue(const struct device_lane *lane);
/* One of the two, 0 or 1. */
unsigned char *device_lane_buffer(const struct device_lane *lane, int buffer);
/* Says that copies of the buffer were started; and waits for them. */
dcp_status device_lane_mark(struct device_lane *lane, int buffer);
dcp_status device_lane_wait(struct device_lane *lane, int buffer);

#endif
