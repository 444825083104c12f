/* SPDX-License-Identifier: BSD-3-Clause */
/* One large record of a shard file, checksummed and written by several threads: its place in the
 * file is known, blocks are hashed each by itself, and the CRCs of chunks are joined. */
#include <stdatomic.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "format/footer.h"
#include "storage/shard_output.h"

#define CHUNK ((size_t)1 << 20)
/* Chunks of a thread that are under way at a time. */
#define AHEAD 4

struct record {
    struct shard_output *output;
    const unsigned char *bytes;
    size_t size;
    uint64_t *blocks; /* of the record's first byte on */
    uint32_t *crcs;   /* by chunk */
    bool copied;      /* through buffers: the memory is not aligned as direct transfers must be */
    atomic_size_t next;
};

/* What one thread works with. */
struct record_writer {
    struct io_queue *queue;
    unsigned char *buffers;
    struct io_transfer transfers[AHEAD];
};

static size_t chunk_size(const struct record *record, size_t start)
{
    return record->size - start < CHUNK ? record->size - start : CHUNK;
}

/* In steps that stay in a core's cache between the two checksums. */
static void checksum_chunk(struct record *record, size_t index)
{
    size_t start = index * CHUNK, end = start + chunk_size(record, start);
    uint32_t crc = 0;
    for (size_t at = start; at < end; at += FOOTER_BLOCK_SIZE) {
        crc = crc32_update(crc, record->bytes + at, FOOTER_BLOCK_SIZE);
        record->blocks[at / FOOTER_BLOCK_SIZE] = xxh3_64(record->bytes + at, FOOTER_BLOCK_SIZE);
    }
    record->crcs[index] = crc;
}

static dcp_status write_chunk(struct record *record, struct record_writer *writer, size_t slot,
                              size_t start)
{
    struct shard_output *output = record->output;
    const unsigned char *bytes = record->bytes + start;
    size_t size = chunk_size(record, start);
    RETURN_IF_ERROR(io_queue_finish(writer->queue, &writer->transfers[slot]));
    if (record->copied) {
        memcpy(writer->buffers + slot * CHUNK, bytes, size);
        bytes = writer->buffers + slot * CHUNK;
    }
    io_queue_write(writer->queue, &writer->transfers[slot], &output->file, bytes, size,
                   output->start + start);
    return progress_add(output->progress, size);
}

static dcp_status writer_open(struct record_writer *writer, const struct record *record)
{
    *writer = (struct record_writer){0};
    RETURN_IF_ERROR(shard_output_queue(record->output, &writer->queue));
    if (!record->copied)
        return DCP_OK;
    writer->buffers = memory_allocate_aligned(FILE_PAGE, AHEAD * CHUNK);
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
        checksum_chunk(record, chunk);
        status = write_chunk(record, &writer, slot, chunk * CHUNK);
        slot = (slot + 1) % AHEAD;
    }
    for (size_t i = 0; i < AHEAD && status == DCP_OK; i++)
        status = io_queue_finish(writer.queue, &writer.transfers[i]);
    io_queue_close(writer.queue);
    memory_release_aligned(writer.buffers);
    return status;
}

uint64_t shard_record_memory(uint64_t size, uint32_t threads, uint64_t queue)
{
    return threads * (AHEAD * CHUNK + FILE_PAGE + queue + THREAD_STACK_SIZE) +
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
        .copied = output->file.direct >= 0 && (uintptr_t)bytes % FILE_PAGE != 0,
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
    output->told = output->position;
    return status;
}
