/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/storage_queue.h"

#include "base/error.h"
#include "base/memory.h"
#include "storage/call_status.h"
#include "storage/transfer_pool.h"

/* A transfer by read() and write(). */
struct slot {
    struct transfer_job job;
    struct storage_transfer *transfer; /* NULL: the slot is free */
    dcp_status status;
    struct saved_error *error; /* of a failure; NULL: there was no memory for it */
};

/* Where transfers go: to the storage's queue, else to a pool, else nowhere. */
struct storage_queue {
    const dcp_storage *table;
    struct storage_manners manners;
    void *native;
    struct transfer_pool *pool;
    struct slot slots[STORAGE_QUEUE_DEPTH]; /* without a queue of the storage's */
};

dcp_status storage_check_io(uint32_t io)
{
    uint32_t known = DCP_IO_RING | DCP_IO_POOL | DCP_IO_DIRECT | DCP_IO_BUFFERED;
    uint32_t ways = DCP_IO_RING | DCP_IO_POOL, caches = DCP_IO_DIRECT | DCP_IO_BUFFERED;
    if ((io & ~known) != 0 || (io & ways) == ways || (io & caches) == caches)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "io is %u, which is not a valid combination of flags", (unsigned)io);
    return DCP_OK;
}

static dcp_status choose_way(struct storage_queue *queue, const struct storage_directory *directory,
                             const dcp_storage_access *given, uint64_t size)
{
    const dcp_storage *table = queue->table;
    dcp_storage_access access = *given;
    access.priority = queue->manners.priority;
    access.threads = queue->manners.threads;
    if (!(access.io & (DCP_IO_RING | DCP_IO_POOL)) && size < STORAGE_LARGE_FILE)
        return DCP_OK;
    if (!table->queue_open && access.io & DCP_IO_RING)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "%s: the storage has no io_uring", directory->id);
    if (!table->queue_open)
        return transfer_pool_open(access.threads, &queue->pool);
    error_clear();
    dcp_status status = call_status(table->queue_open(table->context, directory->handle,
                                                      STORAGE_QUEUE_DEPTH, &access, &queue->native),
                                    "queue_open", directory->id);
    if (status != DCP_OK)
        queue->native = NULL;
    return status;
}

dcp_status storage_queue_open(const struct storage_directory *directory,
                              const dcp_storage_access *access,
                              const struct storage_manners *manners, uint64_t size,
                              struct storage_queue **opened)
{
    struct storage_queue *queue = memory_allocate_zeroed(1, sizeof *queue);
    if (!queue)
        return error_no_memory(sizeof *queue, "a queue of transfers");
    queue->table = directory->table;
    if (manners)
        queue->manners = *manners;
    dcp_status status = choose_way(queue, directory, access, size);
    if (status == DCP_OK)
        *opened = queue;
    else
        storage_queue_close(queue);
    return status;
}

uint64_t storage_queue_memory(uint32_t io, uint64_t size)
{
    uint64_t queue = 16 << 10;
    if (!(io & (DCP_IO_RING | DCP_IO_POOL)) && size < STORAGE_LARGE_FILE)
        return queue;
    /* A queue of the storage's takes less than the pool that may have to stand in for it. */
    return queue + transfer_pool_memory();
}

uint32_t storage_queue_ways(struct storage_queue *queue, struct storage_file *file)
{
    const dcp_storage *table = queue ? queue->table : file->directory->table;
    return table->ways ? table->ways(table->context, file ? &file->file : NULL,
                                     queue ? queue->native : NULL)
                       : 0;
}

static void run(struct transfer_job *job)
{
    struct slot *slot = (struct slot *)job;
    struct storage_file *file = slot->transfer->file;
    const dcp_storage_transfer *what = &slot->transfer->what;
    slot->status = what->write ? storage_file_write(file, what->bytes, what->size, what->offset)
                               : storage_file_read(file, what->bytes, what->size, what->offset);
    if (slot->status == DCP_OK)
        return;
    slot->error = memory_allocate(sizeof *slot->error);
    if (slot->error)
        error_save(slot->error);
}

static struct slot *free_slot(struct storage_queue *queue)
{
    size_t i = 0;
    while (queue->slots[i].transfer)
        i++;
    return &queue->slots[i];
}

static void start(struct storage_queue *queue, struct storage_transfer *transfer)
{
    if (transfer->what.write)
        rate_take(queue->manners.write_rate, transfer->what.size);
    if (queue->native) {
        queue->table->queue_start(queue->table->context, queue->native, &transfer->what);
        return;
    }
    struct slot *slot = free_slot(queue);
    *slot = (struct slot){.job.run = run, .transfer = transfer};
    transfer->what.own = slot;
    if (queue->pool)
        transfer_pool_submit(queue->pool, &slot->job);
    else
        run(&slot->job);
}

void storage_queue_write(struct storage_queue *queue, struct storage_transfer *transfer,
                         struct storage_file *file, const void *bytes, size_t size, uint64_t offset)
{
    *transfer = (struct storage_transfer){
        .file = file,
        .what = {.file = &file->file,
                 .bytes = (void *)bytes,
                 .size = size,
                 .offset = offset,
                 .write = true},
    };
    start(queue, transfer);
}

void storage_queue_read(struct storage_queue *queue, struct storage_transfer *transfer,
                        struct storage_file *file, void *bytes, size_t size, uint64_t offset)
{
    *transfer = (struct storage_transfer){
        .file = file,
        .what = {.file = &file->file, .bytes = bytes, .size = size, .offset = offset},
    };
    start(queue, transfer);
}

/* The outcome of a slot's transfer; frees the slot. */
static dcp_status settle(struct slot *slot)
{
    dcp_status status = slot->status;
    if (slot->error)
        error_restore(slot->error);
    else if (status != DCP_OK)
        dcp_error_set(status, "%s: a transfer failed, and there was no memory to say why",
                      slot->transfer->file->path);
    memory_release(slot->error);
    *slot = (struct slot){0};
    return status;
}

dcp_status storage_queue_finish(struct storage_queue *queue, struct storage_transfer *transfer)
{
    const dcp_storage *table = queue->table;
    struct slot *slot = transfer->what.own;
    dcp_status status;
    if (!transfer->file)
        return DCP_OK;
    if (queue->native) {
        error_clear();
        status = call_status(table->queue_finish(table->context, queue->native, &transfer->what),
                             "queue_finish", transfer->file->path);
    } else {
        if (queue->pool)
            transfer_pool_wait(queue->pool, &slot->job);
        status = settle(slot);
    }
    transfer->file = NULL;
    return status;
}

void storage_queue_close(struct storage_queue *queue)
{
    if (!queue)
        return;
    if (queue->native)
        queue->table->queue_close(queue->table->context, queue->native);
    transfer_pool_close(queue->pool);
    for (size_t i = 0; i < STORAGE_QUEUE_DEPTH; i++)
        memory_release(queue->slots[i].error);
    memory_release(queue);
}
