/* SPDX-License-Identifier: BSD-3-Clause */
/* One large record of a shard file, checksummed and written by several threads: its place in the
 * file is known, blocks are hashed independently, and the CRCs of chunks are combined. Data is
 * copied to buffers in large pages, because it costs a device far more to gather ordinary pages
 * than the copy does. */
#include <stdatomic.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "format/footer/footer.h"
#include "storage/shard/shard_output.h"

#define CHUNK ((size_t)1 << 20)
/* Stays in a core's cache between the two checksums. */
#define STEP ((size_t)64 << 10)
/* Chunks of a thread that are under way at a time. */
#define AHEAD 4

struct record {
    struct shard_output *output;
    const unsigned char *bytes;
    size_t size;
    uint64_t *blocks; /* of the record's first byte on */
    uint32_t *crcs;   /* by chunk */
    atomic_size_t next;
};

/* What one thread works with. */
struct record_writer {
    struct storage_queue *queue;
    unsigned char *buffers; /* CHUNK of each transfer */
    struct storage_transfer transfers[AHEAD];
};

static size_t chunk_size(const struct record *record, size_t start)
{
    return record->size - start < CHUNK ? record->size - start : CHUNK;
}

/* In steps that stay in a core's cache between the copy and the checksums. */
static void copy_chunk(struct record *record, size_t index, unsigned char *buffer)
{
    size_t start = index * CHUNK, size = chunk_size(record, start);
    uint32_t crc = 0;
    for (size_t at = 0; at < size; at += STEP) {
        size_t stop = size - at < STEP ? size : at + STEP;
        memcpy(buffer + at, record->bytes + start + at, stop - at);
        crc = crc32_update(crc, buffer + at, stop - at);
        for (size_t block = at; block < stop; block += FOOTER_BLOCK_SIZE)
            record->blocks[(start + block) / FOOTER_BLOCK_SIZE] =
                xxh3_64(buffer + block, FOOTER_BLOCK_SIZE);
    }
    record->crcs[index] = crc;
}

/* Into a slot that is free; waits for the next one while this one's bytes are at hand, as
 * shard_output.c does. */
static dcp_status write_chunk(struct record *record, struct record_writer *writer, size_t slot,
                              size_t index)
{
    struct shard_output *output = record->output;
    unsigned char *buffer = writer->buffers + slot * CHUNK;
    size_t start = index * CHUNK, size = chunk_size(record, start);
    copy_chunk(record, index, buffer);
    RETURN_IF_ERROR(storage_queue_finish(writer->queue, &writer->transfers[(slot + 1) % AHEAD]));
    storage_queue_write(writer->queue, &writer->transfers[slot], &output->file, buffer, size,
                        output->start + start);
    return progress_add(output->progress, size);
}

static dcp_status writer_open(struct record_writer *writer, const struct record *record)
{
    *writer = (struct record_writer){0};
    RETURN_IF_ERROR(shard_output_queue(record->output, &writer->queue));
    writer->buffers = memory_allocate_large(AHEAD * CHUNK);
    return writer->buffers ? DCP_OK : error_no_memory(AHEAD * CHUNK, "buffers for a large record");
}

static dcp_status write_chunks(void *context, size_t index)
{
    struct record *record = context;
    struct record_writer writer;
    size_t count = (record->size + CHUNK - 1) / CHUNK, slot = 0;
    (void)index;
    dcp_status status = writer_open(&writer, record);
    while (status == DCP_OK) {
        size_t chunk = atomic_fetch_add_explicit(&record->next, 1, memory_order_relaxed);
        if (chunk >= count)
            break;
        status = write_chunk(record, &writer, slot, chunk);
        slot = (slot + 1) % AHEAD;
    }
    for (size_t i = 0; i < AHEAD && status == DCP_OK; i++)
        status = storage_queue_finish(writer.queue, &writer.transfers[i]);
    storage_queue_close(writer.queue);
    memory_release_aligned(writer.buffers);
    return status;
}

uint64_t shard_record_memory(uint64_t size, uint32_t threads, uint64_t queue)
{
    return threads * (memory_large_size(AHEAD * CHUNK) + queue + THREAD_STACK_SIZE) +
           (size / CHUNK + 1) * sizeof(uint32_t);
}

dcp_status shard_output_append_blocks(struct shard_output *output, const unsigned char *bytes,
                                      size_t size, uint32_t *crc)
{
    struct record record = {
        .output = output,
        .bytes = bytes,
        .size = size,
        .blocks = output->blocks + output->block_count,
    };
    size_t count = (size + CHUNK - 1) / CHUNK;
    record.crcs = memory_allocate_array(count, sizeof *record.crcs);
    if (!record.crcs)
        return error_no_memory(count * sizeof *record.crcs, "checksums of a large record");
    dcp_status status = thread_run(output->threads, output->threads, write_chunks, &record);
    for (size_t i = 0; crc && i < count; i++)
        *crc = crc32_join(*crc, record.crcs[i], chunk_size(&record, i * CHUNK));
    memory_release(record.crcs);
    output->block_count += size / FOOTER_BLOCK_SIZE;
    output->start += size;
    output->position += size;
    output->reported = output->position;
    return status;
}
