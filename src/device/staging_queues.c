/* SPDX-License-Identifier: BSD-3-Clause */
#include "device/staging_queues.h"

#include "base/memory.h"
#include "state/device_memory.h"

static bool is_same_queue(const dcp_device *a, const dcp_device *b)
{
    return a->operations == b->operations && a->index == b->index && a->queue == b->queue;
}

dcp_status staging_event_record(const dcp_device *device, void **event)
{
    const dcp_device_operations *operations = device->operations;
    dcp_status status = *event ? DCP_OK : operations->event_open(device, event);
    if (status == DCP_OK)
        status = operations->event_record(device, *event);
    return device_end(device, status);
}

/* Orders our queue behind what the caller has queued. */
static dcp_status open_queue(struct staging_own_queue *queue, const dcp_device *theirs)
{
    const dcp_device_operations *operations = theirs->operations;
    *queue = (struct staging_own_queue){.theirs = *theirs, .ours = *theirs};
    if (!device_overlaps(theirs))
        return DCP_OK;
    void *made = NULL;
    RETURN_IF_ERROR(device_end(theirs, operations->queue_open(theirs, &made)));
    queue->ours.queue = made;
    RETURN_IF_ERROR(staging_event_record(theirs, &queue->event));
    return device_end(theirs, operations->event_follow(&queue->ours, queue->event));
}

static dcp_status find_queue(struct staging_queues *queues, const dcp_device *device, size_t *index)
{
    for (*index = 0; *index < queues->count; ++*index)
        if (is_same_queue(&queues->items[*index].theirs, device))
            return DCP_OK;
    void *grown = memory_reallocate_array(queues->items, queues->count + 1, sizeof *queues->items);
    if (!grown)
        return error_no_memory((queues->count + 1) * sizeof *queues->items, "staging");
    queues->items = grown;
    return open_queue(&queues->items[queues->count++], device);
}

dcp_status staging_queues_open(struct staging_queues *queues, struct staging_pieces *pieces)
{
    for (size_t i = 0; i < pieces->source_count; i++) {
        struct staged_source *source = &pieces->sources[i];
        if (source->bytes > 0 && !device_is_host(&source->device))
            RETURN_IF_ERROR(find_queue(queues, &source->device, &source->queue));
    }
    return DCP_OK;
}

void staging_queues_wait(struct staging_queues *queues)
{
    for (size_t i = 0; i < queues->count; i++) {
        const struct staging_own_queue *queue = &queues->items[i];
        const dcp_device_operations *operations = queue->theirs.operations;
        if (queue->ours.queue != queue->theirs.queue && queue->event &&
            operations->event_record(&queue->ours, queue->event) == DCP_OK)
            operations->event_wait(&queue->ours, queue->event);
    }
}

static void close_queue(struct staging_own_queue *queue)
{
    const dcp_device_operations *operations = queue->theirs.operations;
    if (queue->ours.queue != queue->theirs.queue)
        operations->queue_close(&queue->theirs, queue->ours.queue);
    if (queue->event)
        operations->event_close(&queue->theirs, queue->event);
}

void staging_queues_close(struct staging_queues *queues, struct staging_pieces *pieces)
{
    for (size_t i = 0; i < queues->count; i++)
        close_queue(&queues->items[i]);
    for (size_t i = 0; i < pieces->count; i++) {
        const dcp_device *device = &pieces->sources[pieces->pieces[i].source].device;
        if (pieces->pieces[i].event)
            device->operations->event_close(device, pieces->pieces[i].event);
    }
    memory_release(queues->items);
}

dcp_device staging_queue(const struct staging_queues *queues, size_t index)
{
    return queues->items[index].ours;
}

const dcp_device *staging_first_device(const struct staging_queues *queues)
{
    return queues->count > 0 ? &queues->items[0].theirs : NULL;
}
