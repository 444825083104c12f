/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/shard/shard_output.h"

#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "format/footer/footer.h"

#define BUFFER_SIZE ((size_t)1 << 20)
/* Of files that are worth the memory: a large page, which a device takes as one piece. */
#define BUFFER_LARGE   ((size_t)2 << 20)
#define LARGE_CONTENT  ((uint64_t)64 << 20)
#define BUFFER_MINIMUM (SHARD_OUTPUT_LEAST / SHARD_OUTPUT_BUFFERS)
/* Bytes that are checksummed at a time: stay in a core's cache until they are copied or written. */
#define PIECE ((size_t)256 << 10)
/* The same of what is copied. */
#define STEP ((size_t)64 << 10)
/* From here on, copying into a buffer costs more than another transfer. */
#define STRAIGHT_SIZE ((size_t)64 << 10)
#define STRAIGHT_MOST ((size_t)1 << 20)
/* From here on a record is worth several threads. */
#define THREADED_SIZE ((uint64_t)16 << 20)
/* Room for a footer beside the content of a small file. */
#define FOOTER_ROOM ((size_t)64 << 10)

/* A running checksum, a path, an aligned block's beginning. */
#define SMALL_THINGS ((uint64_t)16 << 10)

/* Whether aligned transfers from aligned memory are better than others. */
static bool is_direct(struct shard_output *output)
{
    return storage_file_wants_alignment(&output->file);
}

static size_t round_to_pages(size_t size)
{
    return (size + MEMORY_PAGE - 1) & ~(MEMORY_PAGE - 1);
}

/* A small file has one buffer, a large one all; none takes more than it has bytes. */
static void choose_buffers(struct shard_output *output, const struct shard_output_options *options)
{
    size_t capacity = options->buffer_bytes / SHARD_OUTPUT_BUFFERS & ~(MEMORY_PAGE - 1);
    capacity = capacity < BUFFER_MINIMUM ? BUFFER_MINIMUM : capacity;
    size_t most = options->content_length >= LARGE_CONTENT ? BUFFER_LARGE : BUFFER_SIZE;
    capacity = capacity > most ? most : capacity;
    output->capacity = capacity;
    output->buffer_count = SHARD_OUTPUT_BUFFERS;
    if (options->content_length < capacity - MEMORY_PAGE)
        output->buffer_count = 1;
    if (output->buffer_count == 1 && options->content_length + FOOTER_ROOM < capacity)
        output->capacity = round_to_pages((size_t)options->content_length + FOOTER_ROOM);
    output->piece = output->capacity - MEMORY_PAGE < PIECE ? output->capacity - MEMORY_PAGE : PIECE;
}

dcp_status shard_output_queue(const struct shard_output *output, struct storage_queue **queue)
{
    const dcp_storage_access access = {
        .size_of = sizeof access, .io = output->io, .page_cache = output->page_cache};
    return storage_queue_open(output->file.directory, &access, &output->manners, output->length,
                              queue);
}

/* For which a queue is opened. */
static uint64_t queue_size(const struct shard_output_options *options)
{
    return options->plain ? 0 : options->content_length;
}

size_t shard_output_piece(const struct shard_output_options *options)
{
    struct shard_output output = {0};
    choose_buffers(&output, options);
    return output.piece;
}

uint64_t shard_output_memory(const struct shard_output_options *options)
{
    struct shard_output output = {0};
    choose_buffers(&output, options);
    uint64_t blocks = options->content_length / FOOTER_BLOCK_SIZE + 1;
    uint64_t queue = storage_queue_memory(options->io, queue_size(options));
    uint64_t memory = memory_large_size(output.buffer_count * output.capacity) + output.piece +
                      blocks * sizeof *output.blocks + queue + SMALL_THINGS;
    if (options->threads > 1 && options->content_length >= THREADED_SIZE)
        memory += shard_record_memory(options->content_length, options->threads, queue);
    return memory;
}

dcp_status shard_output_create(struct shard_output *output,
                               const struct storage_directory *directory, const char *name,
                               const struct shard_output_options *options)
{
    const dcp_storage_access access = {
        .size_of = sizeof access,
        .io = options->io,
        .priority = options->manners.priority,
        .durable = options->sync,
        .size = options->content_length,
        .estimated = options->estimated,
        .page_cache = options->page_cache,
    };
    *output = (struct shard_output){
        .io = options->io,
        .page_cache = options->page_cache,
        .threads = options->threads > 0 ? options->threads : 1,
        .manners = options->manners,
        .sync = options->sync,
        .progress = options->progress,
    };
    uint64_t length = options->content_length;
    output->length = queue_size(options);
    choose_buffers(output, options);
    output->memory = memory_allocate_large(output->buffer_count * output->capacity);
    output->blocks =
        memory_allocate_array((size_t)(length / FOOTER_BLOCK_SIZE + 1), sizeof *output->blocks);
    output->hash = xxh3_stream_new();
    dcp_status status = DCP_OK;
    if (!output->memory || !output->blocks || !output->hash)
        status =
            error_no_memory(output->buffer_count * output->capacity, "the buffers of a shard file");
    if (status == DCP_OK)
        status = storage_file_create(&output->file, directory, name, &access);
    if (status == DCP_OK)
        status = shard_output_queue(output, &output->queue);
    if (status != DCP_OK)
        shard_output_free(output);
    return status;
}

static void end_block(struct shard_output *output)
{
    output->blocks[output->block_count++] = xxh3_stream_digest(output->hash);
    xxh3_stream_reset(output->hash);
}

/* Everything that is appended passes through here once, in order. */
static void checksum(struct shard_output *output, const unsigned char *bytes, size_t size,
                     uint32_t *crc)
{
    if (crc)
        *crc = crc32_update(*crc, bytes, size);
    while (size > 0) {
        size_t left = (size_t)(FOOTER_BLOCK_SIZE - output->position % FOOTER_BLOCK_SIZE);
        size_t taken = size < left ? size : left;
        if (taken == FOOTER_BLOCK_SIZE) {
            output->blocks[output->block_count++] = xxh3_64(bytes, taken);
        } else {
            xxh3_stream_update(output->hash, bytes, taken);
            if (taken == left)
                end_block(output);
        }
        output->position += taken;
        bytes += taken;
        size -= taken;
    }
}

/* Reports how much of the content was written. */
static dcp_status report_progress(struct shard_output *output)
{
    uint64_t bytes = output->position - output->reported;
    output->reported = output->position;
    return progress_add(output->progress, bytes);
}

static unsigned char *buffer_at(const struct shard_output *output, size_t index)
{
    return output->memory + index * output->capacity;
}

/* Waits until what a buffer held is written. */
static dcp_status reclaim(struct shard_output *output, size_t index)
{
    return storage_queue_finish(output->queue, &output->buffered[index]);
}

/* Starts writing the current buffer's whole pages, and continues in the next buffer with the
 * rest. Waits before, not behind: a device that reports many transfers at once, when it has no
 * more, then has the next one right away. */
static dcp_status turn(struct shard_output *output)
{
    const unsigned char *from = buffer_at(output, output->current);
    size_t whole = output->filled & ~(MEMORY_PAGE - 1);
    size_t next = (output->current + 1) % output->buffer_count;
    if (whole == 0)
        return DCP_OK;
    if (next != output->current)
        RETURN_IF_ERROR(reclaim(output, next));
    storage_queue_write(output->queue, &output->buffered[output->current], &output->file, from,
                        whole, output->start);
    if (next == output->current)
        RETURN_IF_ERROR(reclaim(output, next));
    memmove(buffer_at(output, next), from + whole, output->filled - whole);
    output->current = next;
    output->filled -= whole;
    output->start += whole;
    return DCP_OK;
}

dcp_status shard_output_reserve(struct shard_output *output, size_t size, unsigned char **space)
{
    RETURN_IF_ERROR(report_progress(output));
    if (size > output->capacity - output->filled)
        RETURN_IF_ERROR(turn(output));
    *space = buffer_at(output, output->current) + output->filled;
    return DCP_OK;
}

void shard_output_commit(struct shard_output *output, size_t size, uint32_t *crc)
{
    checksum(output, buffer_at(output, output->current) + output->filled, size, crc);
    output->filled += size;
}

/* Into space that has been reserved. */
static void copy_piece(struct shard_output *output, const unsigned char *bytes,
                       unsigned char *space, size_t size, uint32_t *crc)
{
    for (size_t done = 0; done < size; done += STEP) {
        size_t step = size - done < STEP ? size - done : STEP;
        memcpy(space + done, bytes + done, step);
        shard_output_commit(output, step, crc);
    }
}

/* Fills buffers to their ends, so that they are written as a whole. */
static dcp_status append_copied(struct shard_output *output, const unsigned char *bytes,
                                uint64_t size, uint32_t *crc)
{
    while (size > 0) {
        size_t piece = size < output->piece ? (size_t)size : output->piece;
        size_t room = output->capacity - output->filled;
        unsigned char *space;
        if (room > 0 && room < piece)
            piece = room;
        RETURN_IF_ERROR(shard_output_reserve(output, piece, &space));
        copy_piece(output, bytes, space, piece, crc);
        bytes += piece;
        size -= piece;
    }
    return DCP_OK;
}

dcp_status shard_output_append_copy(struct shard_output *output, const void *bytes, uint64_t size)
{
    return append_copied(output, bytes, size, NULL);
}

/* Whole pages, when the current buffer holds whole pages. */
static dcp_status append_straight(struct shard_output *output, const unsigned char *bytes,
                                  uint64_t size, uint32_t *crc)
{
    RETURN_IF_ERROR(turn(output));
    while (size > 0) {
        size_t taken = size < STRAIGHT_MOST ? (size_t)size : STRAIGHT_MOST;
        struct storage_transfer *transfer = &output->straight[output->next_straight];
        output->next_straight = (output->next_straight + 1) % SHARD_OUTPUT_STRAIGHT;
        for (size_t done = 0; done < taken; done += PIECE)
            checksum(output, bytes + done, taken - done < PIECE ? taken - done : PIECE, crc);
        RETURN_IF_ERROR(storage_queue_finish(output->queue, transfer));
        storage_queue_write(output->queue, transfer, &output->file, bytes, taken, output->start);
        output->start += taken;
        bytes += taken;
        size -= taken;
        RETURN_IF_ERROR(report_progress(output));
    }
    return DCP_OK;
}

/* The whole blocks of a large record, after its beginning has ended a block. Only around the page
 * cache: there file systems let several threads write to one file. */
static dcp_status append_threaded(struct shard_output *output, const unsigned char **bytes,
                                  uint64_t *size, uint32_t *crc)
{
    size_t head = (size_t)(-output->position % FOOTER_BLOCK_SIZE);
    RETURN_IF_ERROR(append_copied(output, *bytes, head, crc));
    RETURN_IF_ERROR(turn(output));
    uint64_t blocks = (*size - head) / FOOTER_BLOCK_SIZE * FOOTER_BLOCK_SIZE;
    RETURN_IF_ERROR(shard_output_append_blocks(output, *bytes + head, (size_t)blocks, crc));
    *bytes += head + blocks;
    *size -= head + blocks;
    return DCP_OK;
}

dcp_status shard_output_append(struct shard_output *output, const void *bytes, uint64_t size,
                               uint32_t *crc)
{
    const unsigned char *next = bytes;
    if (output->threads > 1 && size >= THREADED_SIZE && is_direct(output))
        RETURN_IF_ERROR(append_threaded(output, &next, &size, crc));
    /* Bytes that are missing to the end of the current page. */
    size_t gap = round_to_pages(output->filled) - output->filled;
    if (!is_direct(output) && size >= STRAIGHT_SIZE) {
        uint64_t pages = (size - gap) & ~(uint64_t)(MEMORY_PAGE - 1);
        RETURN_IF_ERROR(append_copied(output, next, gap, crc));
        RETURN_IF_ERROR(append_straight(output, next + gap, pages, crc));
        next += gap + pages;
        size -= gap + pages;
    }
    return append_copied(output, next, size, crc);
}

dcp_status shard_output_skip(struct shard_output *output, uint64_t position)
{
    while (output->position < position) {
        uint64_t left = position - output->position;
        size_t piece = left < output->piece ? (size_t)left : output->piece;
        unsigned char *space;
        RETURN_IF_ERROR(shard_output_reserve(output, piece, &space));
        memset(space, 0, piece);
        shard_output_commit(output, piece, NULL);
    }
    return DCP_OK;
}

void shard_output_end(struct shard_output *output)
{
    if (output->position % FOOTER_BLOCK_SIZE != 0)
        end_block(output);
}

/* Sends off what is left, directly but for the end of a page, and waits for everything. */
static dcp_status drain(struct shard_output *output)
{
    if (is_direct(output))
        RETURN_IF_ERROR(turn(output));
    const unsigned char *from = buffer_at(output, output->current);
    struct storage_transfer *last = &output->buffered[output->current];
    if (output->filled > 0)
        storage_queue_write(output->queue, last, &output->file, from, output->filled,
                            output->start);
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < SHARD_OUTPUT_BUFFERS && status == DCP_OK; i++)
        status = reclaim(output, i);
    for (size_t i = 0; i < SHARD_OUTPUT_STRAIGHT && status == DCP_OK; i++)
        status = storage_queue_finish(output->queue, &output->straight[i]);
    return status;
}

static dcp_status seal(struct shard_output *output)
{
    output->ways = storage_queue_ways(output->queue, &output->file);
    int64_t began_ns = clock_monotonic_ns();
    dcp_status status = storage_file_seal(&output->file, shard_output_size(output));
    output->sync_ns = clock_monotonic_ns() - began_ns;
    return status;
}

/* What no block covers. */
static dcp_status append_uncovered(struct shard_output *output, const void *bytes, size_t size)
{
    const unsigned char *next = bytes;
    while (size > 0) {
        size_t piece = size < output->piece ? size : output->piece;
        unsigned char *space;
        RETURN_IF_ERROR(shard_output_reserve(output, piece, &space));
        memcpy(space, next, piece);
        output->filled += piece;
        next += piece;
        size -= piece;
    }
    return DCP_OK;
}

dcp_status shard_output_finish(struct shard_output *output, const void *footer, size_t size)
{
    RETURN_IF_ERROR(
        append_uncovered(output, output->blocks, output->block_count * sizeof *output->blocks));
    RETURN_IF_ERROR(append_uncovered(output, footer, size));
    RETURN_IF_ERROR(drain(output));
    return seal(output);
}

uint64_t shard_output_size(const struct shard_output *output)
{
    return output->start + output->filled;
}

void shard_output_free(struct shard_output *output)
{
    struct saved_error error;
    error_save(&error);
    storage_queue_close(output->queue);
    storage_file_abandon(&output->file);
    error_restore(&error);
    xxh3_stream_free(output->hash);
    memory_release(output->blocks);
    memory_release_aligned(output->memory);
}
