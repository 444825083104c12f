/* SPDX-License-Identifier: BSD-3-Clause */
/* Queues of transfers: by io_uring, else by a few threads. */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/error.h"
#include "base/io_priority.h"
#include "base/log.h"
#include "base/memory.h"
#include "storage/files/files.h"
#include "storage/transfer_pool.h"

/* A transfer under way. */
struct slot {
    struct transfer_job job;
    const dcp_storage_transfer *transfer; /* NULL: the slot is free */
    struct files_queue *queue;
    struct file_transfer what;
    bool pending; /* in the ring */
    int error;
    size_t done;
};

struct files_queue {
    const struct file_ops *ops;
    uint16_t priority;
    void *ring; /* NULL: the pool */
    struct transfer_pool *pool;
    size_t under_way; /* in the ring */
    unsigned depth;
    struct slot slots[];
};

/* DCP_ERR_UNSUPPORTED if there is no ring, or no memory for one: the pool does without. */
static dcp_status open_ring(struct files_queue *queue)
{
    const struct file_ops *ops = queue->ops;
    char reason[128];
    int result = ENOSYS;
    if (ops->queue_open)
        result = ops->queue_open(ops->context, queue->depth, &queue->ring);
    if (result == 0)
        return DCP_OK;
    queue->ring = NULL;
    return dcp_error_set(DCP_ERR_UNSUPPORTED, "io_uring is not available: %s",
                         strerror_r(result, reason, sizeof reason));
}

static dcp_status choose_way(struct files_queue *queue, const dcp_storage_access *access)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    /* A ring would pass transfers through the page cache to threads of the kernel, of which there
     * may be many more. */
    bool through = access->page_cache == DCP_PAGE_CACHE_KEPT && !(access->io & DCP_IO_RING);
    if (!(access->io & DCP_IO_POOL) && !through) {
        dcp_status status = open_ring(queue);
        if (status == DCP_OK || access->io & DCP_IO_RING)
            return status;
        if (!atomic_flag_test_and_set(&said))
            log_line(DCP_LOG_INFO, "several transfers at a time go by threads: %s",
                     dcp_error_message());
    }
    return transfer_pool_open(access->threads, &queue->pool);
}

dcp_status files_queue_open(void *context, void *directory, unsigned depth,
                            const dcp_storage_access *access, void **opened)
{
    size_t size = sizeof(struct files_queue) + depth * sizeof(struct slot);
    struct files_queue *queue = memory_allocate_zeroed(1, size);
    (void)directory;
    if (!queue)
        return error_no_memory(size, "a queue of transfers");
    queue->ops = context;
    queue->depth = depth;
    queue->priority = io_priority_number(access->priority);
    dcp_status status = choose_way(queue, access);
    if (status == DCP_OK)
        *opened = queue;
    else
        memory_release(queue);
    return status;
}

/* The first attempt, which may move less than all. */
static void run(struct transfer_job *job)
{
    struct slot *slot = (struct slot *)job;
    slot->error = files_attempt(slot->transfer->file->handle, &slot->what, &slot->done);
}

void files_queue_start(void *context, void *opened, dcp_storage_transfer *transfer)
{
    const struct file_ops *ops = context;
    struct files_queue *queue = opened;
    struct slot *slot = queue->slots;
    while (slot->transfer)
        slot++;
    *slot = (struct slot){
        .job.run = run,
        .transfer = transfer,
        .queue = queue,
        .what = {.descriptor = files_descriptor(transfer->file->handle, transfer->bytes,
                                                transfer->size, transfer->offset),
                 .write = transfer->write,
                 .bytes = transfer->bytes,
                 .size = transfer->size,
                 .offset = transfer->offset,
                 .priority = queue->priority,
                 .owner = slot},
    };
    transfer->own = slot;
    if (queue->pool) {
        transfer_pool_submit(queue->pool, &slot->job);
    } else if (ops->queue_submit(ops->context, queue->ring, &slot->what) == 0) {
        slot->pending = true;
        queue->under_way++;
    } else {
        run(&slot->job); /* what the ring does not take */
    }
}

/* Takes what the ring has completed. */
static void reap(struct files_queue *queue)
{
    enum { AT_ONCE = 16 };
    struct file_completion completions[AT_ONCE];
    size_t count =
        queue->ops->queue_take(queue->ops->context, queue->ring, completions, AT_ONCE, true);
    for (size_t i = 0; i < count; i++) {
        struct slot *slot = completions[i].owner;
        slot->error = completions[i].error;
        slot->done = completions[i].done;
        slot->pending = false;
        if (slot->what.write && slot->error == 0)
            files_write_back(slot->transfer->file->handle, slot->what.descriptor, slot->what.offset,
                             slot->done);
    }
    queue->under_way -= count;
}

dcp_status files_queue_finish(void *context, void *opened, dcp_storage_transfer *transfer)
{
    struct files_queue *queue = opened;
    struct slot *slot = transfer->own;
    (void)context;
    if (queue->pool)
        transfer_pool_wait(queue->pool, &slot->job);
    while (slot->pending)
        reap(queue);
    dcp_status status = files_settle(transfer->file->handle, &slot->what, slot->error, slot->done);
    slot->transfer = NULL;
    return status;
}

void files_queue_close(void *context, void *opened)
{
    const struct file_ops *ops = context;
    struct files_queue *queue = opened;
    while (queue->under_way > 0)
        reap(queue);
    if (queue->ring)
        ops->queue_close(ops->context, queue->ring);
    transfer_pool_close(queue->pool);
    memory_release(queue);
}

uint32_t files_ways(void *context, dcp_storage_file *file, void *opened)
{
    const struct files_queue *queue = opened;
    (void)context;
    return (file && files_is_direct(file->handle) ? DCP_IO_DIRECT : 0u) |
           (queue && queue->ring ? DCP_IO_RING : 0u);
}
