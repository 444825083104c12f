/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/files/file_ring.h"

#include <errno.h>
#include <liburing.h>
#include <time.h>

#include "base/memory.h"

/* What the system calls move at most. */
#define MOST ((size_t)1 << 30)
/* What the kernel and we share of a ring, at most: some pages. */
#define RING_SIZE ((size_t)16 << 10)
/* Times that a submission is tried while the kernel is short of something. */
#define TRIES 100

/* Every kernel with these two has what else we use. */
static bool has_operations(struct io_uring *ring)
{
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    if (probe == NULL)
        return false;
    bool has = io_uring_opcode_supported(probe, IORING_OP_READ) &&
               io_uring_opcode_supported(probe, IORING_OP_WRITE);
    io_uring_free_probe(probe);
    return has;
}

int file_ring_open(void *context, unsigned depth, void **queue)
{
    (void)context;
    struct io_uring *ring = memory_allocate_beside(sizeof *ring, RING_SIZE);
    if (ring == NULL)
        return ENOMEM;
    int result = -io_uring_queue_init(depth, ring, 0);
    if (result == 0 && !has_operations(ring)) {
        io_uring_queue_exit(ring);
        result = ENOSYS;
    }
    if (result == 0)
        *queue = ring;
    else
        memory_release(ring);
    return result;
}

static void pause_briefly(void)
{
    struct timespec pause = {.tv_nsec = 1000000};
    nanosleep(&pause, NULL);
}

int file_ring_submit(void *context, void *queue, const struct file_transfer *transfer)
{
    (void)context;
    if (transfer->offset > INT64_MAX)
        return transfer->write ? EFBIG : EOVERFLOW;
    struct io_uring_sqe *entry = io_uring_get_sqe(queue);
    if (entry == NULL)
        return EAGAIN;
    unsigned size = (unsigned)(transfer->size < MOST ? transfer->size : MOST);
    if (transfer->write)
        io_uring_prep_write(entry, transfer->descriptor, transfer->bytes, size, transfer->offset);
    else
        io_uring_prep_read(entry, transfer->descriptor, transfer->bytes, size, transfer->offset);
    entry->ioprio = transfer->priority;
    io_uring_sqe_set_data(entry, transfer->owner);
    int result = 0;
    for (int i = 0; i < TRIES; i++) {
        result = io_uring_submit(queue);
        if (result > 0)
            return 0;
        if (result != 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY)
            break;
        if (result != -EINTR)
            pause_briefly();
    }
    /* What the kernel has not taken stays in the ring: as something that does nothing. */
    io_uring_prep_nop(entry);
    io_uring_sqe_set_data(entry, NULL);
    return result != 0 ? -result : EAGAIN;
}

size_t file_ring_take(void *context, void *queue, struct file_completion *completions, size_t room,
                      bool wait)
{
    (void)context;
    size_t count = 0;
    do {
        struct io_uring_cqe *entry;
        /* When waiting fails, completions still come. */
        int result = wait ? io_uring_wait_cqe(queue, &entry) : 0;
        if (result != 0 && result != -EINTR)
            pause_briefly();
        while (count < room && io_uring_peek_cqe(queue, &entry) == 0) {
            void *owner = io_uring_cqe_get_data(entry);
            if (owner != NULL)
                completions[count++] =
                    (struct file_completion){.owner = owner,
                                             .error = entry->res < 0 ? -entry->res : 0,
                                             .done = entry->res < 0 ? 0 : (size_t)entry->res};
            io_uring_cqe_seen(queue, entry);
        }
    } while (wait && count == 0);
    return count;
}

void file_ring_close(void *context, void *queue)
{
    (void)context;
    io_uring_queue_exit(queue);
    memory_release(queue);
}
