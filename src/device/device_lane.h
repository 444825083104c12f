/* SPDX-License-Identifier: BSD-3-Clause */
/* A lane moves data between a device and host memory beside the caller's queue. It has a separate
 * queue, ordered behind the caller's earlier work, and two page-locked buffers: one is copied while
 * the other is processed. */
#ifndef DEVICE_DEVICE_LANE_H
#define DEVICE_DEVICE_LANE_H

#include <pthread.h>
#include <stddef.h>

#include "dcp/device.h"

/* The size of one of a lane's two buffers. */
#define DEVICE_LANE_BUFFER ((size_t)4 << 20)
/* The memory of a lane itself. Packing and converting elements each take another buffer of that
 * size. */
#define DEVICE_LANE_MEMORY ((uint64_t)2 * DEVICE_LANE_BUFFER + ((uint64_t)16 << 10))
/* Smaller copies use no lane: there would be nothing to overlap. */
#define DEVICE_LANE_LEAST ((uint64_t)1 << 20)

/* For one thread at a time. */
struct device_lane;

/* For any thread. */
struct device_lanes {
    pthread_mutex_t mutex;
    struct device_lane *first; /* lanes that are not in use */
    size_t count;              /* of all */
    size_t most;               /* that there may be */
};

void device_lanes_init(struct device_lanes *lanes, size_t most);
/* Sets how many lanes there may be. Only while none is in use. */
void device_lanes_allow(struct device_lanes *lanes, size_t most);
/* Frees the lanes that are not in use; the others may be given back afterwards. */
void device_lanes_clear(struct device_lanes *lanes);
void device_lanes_free(struct device_lanes *lanes);

/* Whether copies of this many bytes should use a lane. */
bool device_lane_is_worth_it(const dcp_device *device, uint64_t bytes);
/* Takes a lane for copies of this many bytes from or to the device. The copies begin after the work
 * that is in the device's queue now. *lane is NULL if plain copies are better: for host memory, a
 * device that cannot overlap, few bytes, or if the operation's memory is limited. lanes: NULL gives
 * no lane. */
dcp_status device_lane_take(struct device_lanes *lanes, const dcp_device *device, uint64_t bytes,
                            struct device_lane **lane);
/* Waits for copies under way, and gives the lane back. NULL is allowed. */
void device_lane_give(struct device_lanes *lanes, struct device_lane *lane);

/* The device with the lane's queue, for copies from and to its buffers. */
const dcp_device *device_lane_queue(const struct device_lane *lane);
/* One of the two buffers, 0 or 1. */
unsigned char *device_lane_buffer(const struct device_lane *lane, int buffer);
/* Marks the end of the buffer's copies that were started; waits for them. */
dcp_status device_lane_mark(struct device_lane *lane, int buffer);
dcp_status device_lane_wait(struct device_lane *lane, int buffer);

#endif
