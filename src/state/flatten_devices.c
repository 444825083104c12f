/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/clock.h"
#include "base/error.h"
#include "state/device_memory.h"
#include "state/flatten.h"

/* The longest pause between two looks at a queue, and the first one. */
#define PAUSE_NS_MOST  1000000
#define PAUSE_NS_FIRST 10000
/* Queues that are remembered; waiting twice for one is no mistake. */
#define SEEN_MOST 16

struct waiting {
    struct deadline deadline;
    double seconds;
    dcp_device seen[SEEN_MOST];
    size_t count; /* of all queues so far */
};

static bool was_seen(const struct waiting *waiting, const dcp_device *device)
{
    for (size_t i = 0; i < waiting->count && i < SEEN_MOST; i++) {
        const dcp_device *seen = &waiting->seen[i];
        if (seen->operations == device->operations && seen->index == device->index &&
            seen->queue == device->queue)
            return true;
    }
    return false;
}

static dcp_status await_event(const struct waiting *waiting, const dcp_device *device, void *event)
{
    int64_t pause = PAUSE_NS_FIRST;
    bool reached = false;
    for (;;) {
        bool late = deadline_passed(waiting->deadline);
        RETURN_IF_ERROR(device->operations->event_reached(device, event, &reached));
        if (reached)
            return DCP_OK;
        if (late)
            return dcp_error_set(DCP_ERR_TIMEOUT,
                                 "earlier work of the device did not finish within %g seconds",
                                 waiting->seconds);
        clock_sleep_ns(pause);
        pause = 2 * pause < PAUSE_NS_MOST ? 2 * pause : PAUSE_NS_MOST;
    }
}

static dcp_status await_queue(struct waiting *waiting, const dcp_device *device)
{
    const dcp_device_operations *operations = device->operations;
    void *event = NULL;
    if (device_is_host(device) || !device_overlaps(device) || was_seen(waiting, device))
        return DCP_OK;
    waiting->seen[waiting->count++ % SEEN_MOST] = *device;
    RETURN_IF_ERROR(device_end(device, operations->event_open(device, &event)));
    dcp_status status = operations->event_record(device, event);
    if (status == DCP_OK)
        status = await_event(waiting, device, event);
    status = device_end(device, status);
    operations->event_close(device, event);
    return status;
}

dcp_status flatten_await_devices(const struct flat_state *flat, double timeout_seconds)
{
    double seconds = timeout_seconds / 2;
    struct waiting waiting = {.deadline = deadline_after(seconds), .seconds = seconds};
    for (size_t i = 0; i < flat->count && !flat->host_only; i++) {
        const struct flat_entry *entry = &flat->entries[i];
        if (entry->left_out || entry->node->kind != DCP_KIND_TENSOR)
            continue;
        const struct state_tensor *tensor = entry->node->as.tensor;
        for (size_t c = 0; c < tensor->chunk_count; c++) {
            dcp_status status = await_queue(&waiting, &tensor->chunks[c].device);
            if (status != DCP_OK)
                return error_prefix(status, "%s", entry->name);
        }
    }
    return DCP_OK;
}
