/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/io_queue.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/error.h"
#include "base/io_priority.h"
#include "base/log.h"
#include "base/memory.h"
#include "storage/io_pool.h"

/* Where transfers go: to a ring, else to a pool, else nowhere. */
struct io_queue {
    const struct file_ops *ops;
    struct io_manners manners;
    bool demands_direct;
    bool writes_back;
    bool direct_refused; /* by the file system, when it came to it */
    void *ring;
    struct io_pool *pool;
    size_t under_way; /* in the ring */
};

dcp_status io_check(uint32_t io)
{
    uint32_t known = DCP_IO_RING | DCP_IO_POOL | DCP_IO_DIRECT | DCP_IO_BUFFERED;
    uint32_t ways = DCP_IO_RING | DCP_IO_POOL, caches = DCP_IO_DIRECT | DCP_IO_BUFFERED;
    if ((io & ~known) != 0 || (io & ways) == ways || (io & caches) == caches)
        return dcp_error_set(DCP_ERR_ARGUMENT, "io is %u, which are no flags that go together",
                             (unsigned)io);
    return DCP_OK;
}

/* What is missing is missing for all saves: it is said once. */
static void say_once(atomic_flag *said, const char *what, const char *why)
{
    if (!atomic_flag_test_and_set(said))
        log_line(DCP_LOG_INFO, "%s: %s", what, why);
}

static void say_not_direct(const char *why)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    say_once(&said, "files go through the page cache", why);
}

/* DCP_ERR_UNSUPPORTED if there is no ring. */
static dcp_status open_ring(struct io_queue *queue)
{
    char reason[128];
    int result = ENOSYS;
    if (queue->ops->queue_open)
        result = queue->ops->queue_open(queue->ops->context, IO_QUEUE_DEPTH, &queue->ring);
    if (result == 0)
        return DCP_OK;
    queue->ring = NULL;
    return dcp_error_set(DCP_ERR_UNSUPPORTED, "there is no io_uring: %s",
                         strerror_r(result, reason, sizeof reason));
}

static dcp_status choose_way(struct io_queue *queue, uint32_t io, uint64_t size)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    dcp_status status = DCP_ERR_UNSUPPORTED;
    if (!(io & (DCP_IO_RING | DCP_IO_POOL)) && size < IO_LARGE_FILE)
        return DCP_OK;
    if (!(io & DCP_IO_POOL))
        status = open_ring(queue);
    if (status == DCP_OK || io & DCP_IO_RING)
        return status;
    if (!(io & DCP_IO_POOL))
        say_once(&said, "several transfers at a time go by threads", dcp_error_message());
    return io_pool_open(queue->ops, queue->manners.threads, &queue->pool);
}

dcp_status io_queue_open(const struct file_ops *ops, uint32_t io, const struct io_manners *manners,
                         uint64_t size, bool write_back, struct io_queue **opened)
{
    struct io_queue *queue = memory_allocate_zeroed(1, sizeof *queue);
    if (!queue)
        return error_no_memory(sizeof *queue, "a queue of transfers");
    queue->ops = ops;
    if (manners)
        queue->manners = *manners;
    queue->demands_direct = io & DCP_IO_DIRECT;
    queue->writes_back = write_back && size >= IO_LARGE_FILE;
    dcp_status status = choose_way(queue, io, size);
    if (status == DCP_OK)
        *opened = queue;
    else
        io_queue_close(queue);
    return status;
}

uint64_t io_queue_memory(uint32_t io, uint64_t size)
{
    uint64_t queue = 16 << 10;
    if (!(io & (DCP_IO_RING | DCP_IO_POOL)) && size < IO_LARGE_FILE)
        return queue;
    /* A ring takes less than the pool that may have to stand in for it. */
    return io & DCP_IO_RING ? queue + FILE_QUEUE_MEMORY : queue + io_pool_memory();
}

bool io_queue_has_ring(const struct io_queue *queue)
{
    return queue->ring != NULL;
}

bool io_queue_was_refused(const struct io_queue *queue)
{
    return queue->direct_refused;
}

dcp_status io_open_direct(struct file *file, uint32_t io, uint64_t size, unsigned flags)
{
    if (io & DCP_IO_BUFFERED || (!(io & DCP_IO_DIRECT) && size < IO_LARGE_FILE))
        return DCP_OK;
    dcp_status status = file_open_direct(file, flags);
    if (status != DCP_ERR_UNSUPPORTED || io & DCP_IO_DIRECT)
        return status;
    say_not_direct(dcp_error_message());
    return DCP_OK;
}

static bool is_aligned(const void *bytes, size_t size, uint64_t offset)
{
    return (((uintptr_t)bytes | size | offset) & (FILE_PAGE - 1)) == 0;
}

static void start(struct io_queue *queue, struct io_transfer *transfer, struct file *file,
                  const struct file_transfer *what)
{
    const struct file_ops *ops = queue->ops;
    bool direct = file->direct >= 0 && !queue->direct_refused &&
                  is_aligned(what->bytes, what->size, what->offset);
    *transfer = (struct io_transfer){.file = file, .what = *what, .pending = true};
    transfer->what.descriptor = direct ? file->direct : file->descriptor;
    transfer->what.owner = transfer;
    transfer->what.priority = io_priority_number(queue->manners.priority);
    if (what->write)
        rate_take(queue->manners.write_rate, what->size);
    transfer->write_back = what->write && !direct && queue->writes_back;
    if (queue->pool) {
        io_pool_submit(queue->pool, transfer);
    } else if (queue->ring && ops->queue_submit(ops->context, queue->ring, &transfer->what) == 0) {
        queue->under_way++;
    } else {
        /* Also what the ring does not take. */
        io_transfer_run(ops, transfer);
        transfer->pending = false;
    }
}

void io_queue_write(struct io_queue *queue, struct io_transfer *transfer, struct file *file,
                    const void *bytes, size_t size, uint64_t offset)
{
    struct file_transfer what = {
        .write = true, .bytes = (void *)bytes, .size = size, .offset = offset};
    start(queue, transfer, file, &what);
}

void io_queue_read(struct io_queue *queue, struct io_transfer *transfer, struct file *file,
                   void *bytes, size_t size, uint64_t offset)
{
    struct file_transfer what = {.bytes = bytes, .size = size, .offset = offset};
    start(queue, transfer, file, &what);
}

/* Takes what the ring has completed. */
static void reap(struct io_queue *queue, bool wait)
{
    struct file_completion completions[IO_QUEUE_DEPTH];
    size_t count =
        queue->ops->queue_take(queue->ops->context, queue->ring, completions, IO_QUEUE_DEPTH, wait);
    for (size_t i = 0; i < count; i++) {
        struct io_transfer *transfer = completions[i].owner;
        transfer->error = completions[i].error;
        transfer->done = completions[i].done;
        transfer->pending = false;
        io_transfer_write_back(queue->ops, transfer);
    }
    queue->under_way -= count;
}

/* Does plainly what the first attempt has left undone: the end of a short transfer, what was
 * interrupted or refused for the moment, and what cannot be direct after all. */
static dcp_status settle(struct io_queue *queue, const struct io_transfer *transfer)
{
    const struct file_transfer *what = &transfer->what;
    struct file *file = transfer->file;
    bool direct = what->descriptor != file->descriptor;
    if (transfer->error == EINVAL && direct && !queue->demands_direct) {
        queue->direct_refused = true;
        say_not_direct("the file system refuses direct transfers");
    } else if (transfer->error != 0 && transfer->error != EINTR && transfer->error != EAGAIN) {
        return file_transfer_error(transfer->error, what->write ? "write" : "read", file->path,
                                   what->size, what->offset);
    }
    size_t done = transfer->error == 0 ? transfer->done : 0;
    unsigned char *rest = (unsigned char *)what->bytes + done;
    return what->write ? file_write(file, rest, what->size - done, what->offset + done)
                       : file_read(file, rest, what->size - done, what->offset + done);
}

dcp_status io_queue_finish(struct io_queue *queue, struct io_transfer *transfer)
{
    if (!transfer->file)
        return DCP_OK;
    if (queue->pool)
        io_pool_wait(queue->pool, transfer);
    while (!queue->pool && transfer->pending)
        reap(queue, true);
    dcp_status status = settle(queue, transfer);
    transfer->file = NULL;
    return status;
}

void io_queue_close(struct io_queue *queue)
{
    if (!queue)
        return;
    while (queue->under_way > 0)
        reap(queue, true);
    if (queue->ring)
        queue->ops->queue_close(queue->ops->context, queue->ring);
    io_pool_close(queue->pool);
    memory_release(queue);
}
