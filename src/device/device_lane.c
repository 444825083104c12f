/* SPDX-License-Identifier: BSD-3-Clause */
#include "device/device_lane.h"

#include "base/error.h"
#include "base/memory.h"
#include "state/device_memory.h"

struct device_lane {
    dcp_device device; /* its queue is ours */
    unsigned char *memory;
    bool locked;
    void *behind; /* event behind the caller's earlier work */
    void *events[2];
    bool marked[2];
    struct device_lane *next;
};

void device_lanes_init(struct device_lanes *lanes, size_t most)
{
    pthread_mutex_init(&lanes->mutex, NULL);
    lanes->first = NULL;
    lanes->count = 0;
    lanes->most = most;
}

void device_lanes_allow(struct device_lanes *lanes, size_t most)
{
    device_lanes_clear(lanes);
    lanes->most = most;
}

static void close_lane(struct device_lane *lane)
{
    const dcp_device_operations *operations = lane->device.operations;
    void *events[] = {lane->behind, lane->events[0], lane->events[1]};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (events[i])
            operations->event_close(&lane->device, events[i]);
    if (lane->locked)
        operations->page_unlock(&lane->device, lane->memory);
    if (lane->device.queue)
        operations->queue_close(&lane->device, lane->device.queue);
    memory_release_aligned(lane->memory);
    memory_release(lane);
}

void device_lanes_clear(struct device_lanes *lanes)
{
    pthread_mutex_lock(&lanes->mutex);
    struct device_lane *lane = lanes->first;
    lanes->first = NULL;
    for (const struct device_lane *idle = lane; idle; idle = idle->next)
        lanes->count--;
    pthread_mutex_unlock(&lanes->mutex);
    while (lane) {
        struct device_lane *next = lane->next;
        close_lane(lane);
        lane = next;
    }
}

void device_lanes_free(struct device_lanes *lanes)
{
    device_lanes_clear(lanes);
    pthread_mutex_destroy(&lanes->mutex);
}

static dcp_status make_parts(struct device_lane *lane)
{
    const dcp_device_operations *operations = lane->device.operations;
    const dcp_device *device = &lane->device;
    void *queue = NULL;
    lane->memory = memory_allocate_aligned(MEMORY_PAGE, 2 * DEVICE_LANE_BUFFER);
    if (!lane->memory)
        return error_no_memory(2 * DEVICE_LANE_BUFFER, "buffers for a device");
    RETURN_IF_ERROR(
        device_end(device, operations->page_lock(device, lane->memory, 2 * DEVICE_LANE_BUFFER)));
    lane->locked = true;
    RETURN_IF_ERROR(device_end(device, operations->queue_open(device, &queue)));
    lane->device.queue = queue;
    RETURN_IF_ERROR(device_end(device, operations->event_open(device, &lane->behind)));
    for (int i = 0; i < 2; i++)
        RETURN_IF_ERROR(device_end(device, operations->event_open(device, &lane->events[i])));
    return DCP_OK;
}

static dcp_status open_lane(const dcp_device *device, struct device_lane **lane)
{
    struct device_lane *made = *lane = memory_allocate_zeroed(1, sizeof *made);
    if (!made)
        return error_no_memory(sizeof *made, "a lane to a device");
    made->device = *device;
    made->device.queue = NULL;
    dcp_status status = make_parts(made);
    if (status != DCP_OK) {
        close_lane(made);
        *lane = NULL;
    }
    return status;
}

/* With the mutex held. NULL: there is no lane for this device. */
static struct device_lane *find_lane(struct device_lanes *lanes, const dcp_device *device)
{
    struct device_lane **link = &lanes->first;
    while (*link && ((*link)->device.operations != device->operations ||
                     (*link)->device.index != device->index))
        link = &(*link)->next;
    struct device_lane *lane = *link;
    if (lane)
        *link = lane->next;
    return lane;
}

/* Takes an existing lane, or makes room for a new one, if need be in place of another device's. */
static bool claim_lane(struct device_lanes *lanes, const dcp_device *device,
                       struct device_lane **lane)
{
    struct device_lane *other = NULL;
    pthread_mutex_lock(&lanes->mutex);
    *lane = find_lane(lanes, device);
    bool room = *lane || lanes->count < lanes->most;
    if (!room && lanes->first) {
        other = lanes->first;
        lanes->first = other->next;
        lanes->count--;
        room = true;
    }
    if (room && !*lane)
        lanes->count++;
    pthread_mutex_unlock(&lanes->mutex);
    if (other)
        close_lane(other);
    return room;
}

static void unclaim_lane(struct device_lanes *lanes)
{
    pthread_mutex_lock(&lanes->mutex);
    lanes->count--;
    pthread_mutex_unlock(&lanes->mutex);
}

/* Orders what we queue from now on behind what the caller has queued so far. */
static dcp_status follow(struct device_lane *lane, const dcp_device *theirs)
{
    const dcp_device_operations *operations = theirs->operations;
    dcp_status status = operations->event_record(theirs, lane->behind);
    if (status == DCP_OK)
        status = operations->event_follow(&lane->device, lane->behind);
    return device_end(theirs, status);
}

bool device_lane_is_worth_it(const dcp_device *device, uint64_t bytes)
{
    return !device_is_host(device) && device_overlaps(device) && bytes >= DEVICE_LANE_LEAST;
}

dcp_status device_lane_take(struct device_lanes *lanes, const dcp_device *device, uint64_t bytes,
                            struct device_lane **lane)
{
    *lane = NULL;
    if (!lanes || !device_lane_is_worth_it(device, bytes) || !claim_lane(lanes, device, lane))
        return DCP_OK;
    dcp_status status = *lane ? DCP_OK : open_lane(device, lane);
    if (status != DCP_OK) {
        unclaim_lane(lanes);
        return status;
    }
    status = follow(*lane, device);
    if (status != DCP_OK) {
        device_lane_give(lanes, *lane);
        *lane = NULL;
    }
    return status;
}

/* After a failure, copies may be under way that are not marked yet, so mark them here. */
void device_lane_give(struct device_lanes *lanes, struct device_lane *lane)
{
    struct saved_error error;
    if (!lane)
        return;
    const dcp_device_operations *operations = lane->device.operations;
    error_save(&error);
    if (operations->event_record(&lane->device, lane->events[0]) == DCP_OK)
        operations->event_wait(&lane->device, lane->events[0]);
    error_restore(&error);
    lane->marked[0] = lane->marked[1] = false;
    pthread_mutex_lock(&lanes->mutex);
    lane->next = lanes->first;
    lanes->first = lane;
    pthread_mutex_unlock(&lanes->mutex);
}

const dcp_device *device_lane_queue(const struct device_lane *lane)
{
    return &lane->device;
}

unsigned char *device_lane_buffer(const struct device_lane *lane, int buffer)
{
    return lane->memory + (size_t)buffer * DEVICE_LANE_BUFFER;
}

dcp_status device_lane_mark(struct device_lane *lane, int buffer)
{
    const dcp_device *device = &lane->device;
    RETURN_IF_ERROR(
        device_end(device, device->operations->event_record(device, lane->events[buffer])));
    lane->marked[buffer] = true;
    return DCP_OK;
}

dcp_status device_lane_wait(struct device_lane *lane, int buffer)
{
    const dcp_device *device = &lane->device;
    if (!lane->marked[buffer])
        return DCP_OK;
    lane->marked[buffer] = false;
    return device_end(device, device->operations->event_wait(device, lane->events[buffer]));
}
