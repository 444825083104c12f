/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/shard_output.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/footer.h"

/* A buffer is small beside what it serves: eight of them are within a save's memory. */
#define BUFFER_SIZE ((size_t)4 << 20)
/* From here on, copying into the buffer costs more than another write. */
#define DIRECT_SIZE ((size_t)64 << 10)
/* Room for a footer beside the content of a small file. */
#define FOOTER_ROOM ((size_t)64 << 10)

dcp_status shard_output_create(struct shard_output *output, const struct file_ops *ops,
                               const char *path, uint64_t content_length)
{
    *output = (struct shard_output){.file = {.descriptor = -1}};
    output->capacity = BUFFER_SIZE;
    if (content_length < BUFFER_SIZE - SHARD_OUTPUT_PIECE - FOOTER_ROOM)
        output->capacity = (size_t)content_length + SHARD_OUTPUT_PIECE + FOOTER_ROOM;
    uint64_t blocks = content_length / FOOTER_BLOCK_SIZE + 1;
    output->buffer = memory_allocate(output->capacity);
    output->blocks = memory_allocate_array((size_t)blocks, sizeof *output->blocks);
    output->hash = xxh3_stream_new();
    dcp_status status = DCP_OK;
    if (!output->buffer || !output->blocks || !output->hash)
        status = error_no_memory(output->capacity, "the buffer of a shard file");
    if (status == DCP_OK)
        status = file_open(&output->file, ops, path, FILE_CREATE_NEW);
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
        xxh3_stream_update(output->hash, bytes, taken);
        output->position += taken;
        bytes += taken;
        size -= taken;
        if (taken == left)
            end_block(output);
    }
}

static dcp_status flush(struct shard_output *output, uint64_t end)
{
    size_t filled = output->filled;
    output->filled = 0;
    return filled > 0 ? file_write(&output->file, output->buffer, filled, end - filled) : DCP_OK;
}

/* Puts bytes behind those that end at `at`. */
static dcp_status place(struct shard_output *output, const void *bytes, size_t size, uint64_t at)
{
    if (size >= DIRECT_SIZE || size > output->capacity - output->filled)
        RETURN_IF_ERROR(flush(output, at));
    if (size >= DIRECT_SIZE)
        return file_write(&output->file, bytes, size, at);
    if (size > 0)
        memcpy(output->buffer + output->filled, bytes, size);
    output->filled += size;
    return DCP_OK;
}

dcp_status shard_output_append(struct shard_output *output, const void *bytes, uint64_t size,
                               uint32_t *crc)
{
    const unsigned char *next = bytes;
    while (size > 0) {
        size_t piece = size < SHARD_OUTPUT_PIECE ? (size_t)size : SHARD_OUTPUT_PIECE;
        uint64_t at = output->position;
        checksum(output, next, piece, crc);
        RETURN_IF_ERROR(place(output, next, piece, at));
        next += piece;
        size -= piece;
    }
    return DCP_OK;
}

dcp_status shard_output_reserve(struct shard_output *output, size_t size, unsigned char **space)
{
    if (size > output->capacity - output->filled)
        RETURN_IF_ERROR(flush(output, output->position));
    *space = output->buffer + output->filled;
    return DCP_OK;
}

void shard_output_commit(struct shard_output *output, size_t size, uint32_t *crc)
{
    checksum(output, output->buffer + output->filled, size, crc);
    output->filled += size;
}

dcp_status shard_output_skip(struct shard_output *output, uint64_t position)
{
    while (output->position < position) {
        uint64_t left = position - output->position;
        size_t piece = left < SHARD_OUTPUT_PIECE ? (size_t)left : SHARD_OUTPUT_PIECE;
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

dcp_status shard_output_finish(struct shard_output *output, const void *footer, size_t size,
                               bool sync)
{
    RETURN_IF_ERROR(place(output, footer, size, output->position));
    RETURN_IF_ERROR(flush(output, output->position + (size < DIRECT_SIZE ? size : 0)));
    if (sync)
        RETURN_IF_ERROR(file_sync(&output->file));
    return file_close(&output->file);
}

void shard_output_free(struct shard_output *output)
{
    struct error_story story;
    error_save(&story);
    file_close(&output->file);
    error_restore(&story);
    xxh3_stream_free(output->hash);
    memory_release(output->blocks);
    memory_release(output->buffer);
}
