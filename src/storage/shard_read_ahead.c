/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading a large range of a file with several reads under way. */
#include "base/error.h"
#include "storage/io_queue.h"
#include "storage/shard_file.h"

/* Stays in a core's cache from being read, if that is at once, until it has been visited. */
#define PIECE ((size_t)512 << 10)

/* A range that is read: the pieces from `visited` to `started` are under way. */
struct reading {
    struct io_queue *queue;
    struct shard_file *file;
    unsigned char *bytes;
    size_t size;
    uint64_t offset;
    size_t started;
    size_t visited;
    struct io_transfer transfers[IO_QUEUE_DEPTH];
};

static struct io_transfer *transfer_at(struct reading *reading, size_t position)
{
    return &reading->transfers[position / PIECE % IO_QUEUE_DEPTH];
}

static size_t piece_at(const struct reading *reading, size_t position)
{
    size_t left = reading->size - position;
    return left < PIECE ? left : PIECE;
}

/* Fills the queue, unless the first piece is there already: then reading ahead would only drive it
 * out of the core's cache. */
static void start_pieces(struct reading *reading)
{
    while (reading->started < reading->size &&
           reading->started - reading->visited < IO_QUEUE_DEPTH * PIECE) {
        size_t at = reading->started;
        if (at > reading->visited &&
            io_queue_is_complete(reading->queue, transfer_at(reading, reading->visited)))
            break;
        io_queue_read(reading->queue, transfer_at(reading, at), &reading->file->file,
                      reading->bytes + at, piece_at(reading, at), reading->offset + at);
        reading->started += piece_at(reading, at);
    }
}

dcp_status shard_file_read_ahead(struct shard_file *file, void *bytes, size_t size, uint64_t offset,
                                 shard_piece_visitor visit, void *context)
{
    struct reading reading = {.file = file, .bytes = bytes, .size = size, .offset = offset};
    struct shard_reader *reader = file->reader;
    RETURN_IF_ERROR(io_queue_open(reader->ops, reader->io, size, &reading.queue));
    if (io_queue_has_ring(reading.queue))
        atomic_store_explicit(&reader->ring, true, memory_order_relaxed);
    if (file->file.direct >= 0)
        atomic_store_explicit(&reader->direct, true, memory_order_relaxed);
    dcp_status status = DCP_OK;
    while (status == DCP_OK && reading.visited < size) {
        size_t at = reading.visited, piece = piece_at(&reading, at);
        start_pieces(&reading);
        status = io_queue_finish(reading.queue, transfer_at(&reading, at));
        if (status == DCP_OK)
            status = visit(context, offset + at, reading.bytes + at, piece);
        reading.visited += piece;
    }
    atomic_fetch_add_explicit(&reader->bytes_read, reading.started, memory_order_relaxed);
    io_queue_close(reading.queue);
    return status;
}
