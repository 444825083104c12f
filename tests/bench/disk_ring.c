/* SPDX-License-Identifier: BSD-3-Clause */
#include "disk_ring.h"

#if DCP_HAVE_URING

#include <err.h>
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>

struct disk_ring {
    struct io_uring ring;
};

struct disk_ring *disk_ring_open(void)
{
    struct disk_ring *ring = malloc(sizeof *ring);

    if (ring && io_uring_queue_init(DISK_RING_DEPTH, &ring->ring, 0) != 0) {
        free(ring);
        ring = NULL;
    }
    return ring;
}

void disk_ring_close(struct disk_ring *ring)
{
    if (ring)
        io_uring_queue_exit(&ring->ring);
    free(ring);
}

void disk_ring_start(struct disk_ring *ring, struct disk_piece *piece)
{
    struct io_uring_sqe *entry = io_uring_get_sqe(&ring->ring);
    unsigned size = (unsigned)piece->size;
    int result;

    if (!entry)
        errx(1, "io_uring has no room");
    if (piece->write)
        io_uring_prep_write(entry, piece->file, piece->bytes, size, (__u64)piece->offset);
    else
        io_uring_prep_read(entry, piece->file, piece->bytes, size, (__u64)piece->offset);
    io_uring_sqe_set_data(entry, piece);
    do
        result = io_uring_submit(&ring->ring);
    while (result == -EINTR || result == -EAGAIN || result == -EBUSY);
    if (result < 0)
        errx(1, "io_uring takes no transfer: error %d", -result);
}

struct disk_piece *disk_ring_take(struct disk_ring *ring, ssize_t *moved)
{
    struct io_uring_cqe *entry;
    int result;

    do
        result = io_uring_wait_cqe(&ring->ring, &entry);
    while (result == -EINTR);
    if (result < 0)
        errx(1, "io_uring gives no completion: error %d", -result);
    struct disk_piece *piece = io_uring_cqe_get_data(entry);
    *moved = entry->res;
    io_uring_cqe_seen(&ring->ring, entry);
    return piece;
}

#else

struct disk_ring *disk_ring_open(void)
{
    return NULL;
}

void disk_ring_close(struct disk_ring *ring)
{
    (void)ring;
}

void disk_ring_start(struct disk_ring *ring, struct disk_piece *piece)
{
    (void)ring, (void)piece;
}

struct disk_piece *disk_ring_take(struct disk_ring *ring, ssize_t *moved)
{
    (void)ring;
    *moved = 0;
    return NULL;
}

#endif
