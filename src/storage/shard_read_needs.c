/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/shard_read_needs.h"

#include "base/error.h"
#include "base/memory_account.h"
#include "base/thread.h"
#include "format/item.h"
#include "state/device_memory.h"
#include "storage/read_region.h"
#include "storage/shard_request.h"

/* What each thread takes to open an item: a small stream as a whole, the directory of a large one
 * and the pickle in it, an arena, running checksums. */
#define ITEM_SIZE ((uint64_t)256 << 10)
/* Lists of threads, and what surrounds blocks of memory. */
#define SMALL_THINGS ((uint64_t)16 << 10)
/* Enough of a compressed stream to see what decompressing it takes. */
#define FRAME_HEAD ((size_t)32)

/* Opens a piece's file, unless it is open. */
static dcp_status look_at_file(struct shard_reader *reader, const struct metadata_piece *piece,
                               dcp_verification verification, struct shard_read_needs *needs,
                               struct shard_file **file)
{
    bool was_open =
        reader->pinned || (piece->file < reader->file_count && reader->files[piece->file]);
    struct memory_span span;
    memory_span_start(&span);
    dcp_status status = shard_file_acquire(reader, piece->file, verification, file);
    uint64_t opening = memory_span_end(&span);
    RETURN_IF_ERROR(status);
    if (was_open)
        return DCP_OK;
    uint64_t memory = (*file)->memory;
    needs->files += memory;
    if (memory > needs->largest)
        needs->largest = memory;
    if (opening > needs->opening)
        needs->opening = opening;
    if ((*file)->footer == FOOTER_GOOD && (*file)->block_size > needs->block)
        needs->block = (*file)->block_size;
    return DCP_OK;
}

/* A stream and what becomes of it are both in memory. */
static dcp_status look_at_stream(struct shard_file *file, const struct metadata_entry *entry,
                                 const struct metadata_piece *piece, uint64_t *memory)
{
    unsigned char head[FRAME_HEAD];
    size_t size = piece->length < sizeof head ? (size_t)piece->length : sizeof head;
    uint64_t bytes;
    *memory = 0;
    /* What reaches beyond its file is told of when it is read. */
    if (piece->offset > file->size || size > file->size - piece->offset)
        return DCP_OK;
    RETURN_IF_ERROR(shard_file_read(file, head, size, piece->offset));
    if (!shape_bytes(entry->ndim, piece->sizes, entry->dtype, &bytes) ||
        __builtin_add_overflow(bytes, piece->length, &bytes) ||
        __builtin_add_overflow(bytes, item_decompress_memory(head, size), memory))
        *memory = UINT64_MAX / 4;
    return DCP_OK;
}

static dcp_status look_at_tensor(const struct shard_request *request, struct shard_file *file,
                                 struct shard_read_needs *needs)
{
    const struct metadata_piece *piece = request->piece;
    uint64_t memory = 0;
    if (piece->zstd)
        RETURN_IF_ERROR(look_at_stream(file, request->entry, piece, &memory));
    else if (piece->view && piece->view->deflated &&
             __builtin_add_overflow(piece->view->data_length, piece->view->storage_bytes, &memory))
        memory = UINT64_MAX / 4;
    if (memory > needs->unpacked)
        needs->unpacked = memory;
    needs->requests++;
    needs->divided += shard_request_most_parts(request) > 1;
    needs->device = needs->device || !device_is_host(&request->target->device);
    return DCP_OK;
}

dcp_status shard_read_needs_find(struct shard_reader *reader, const struct shard_request *requests,
                                 size_t count, dcp_verification verification,
                                 struct shard_read_needs *needs)
{
    struct shard_read_how closed = reader->how, how = reader->how;
    *needs = (struct shard_read_needs){.io = reader->io};
    closed.open_files = 0;
    shard_reader_set_how(reader, &closed);
    shard_reader_set_how(reader, &how);
    for (size_t i = 0; i < count; i++) {
        const struct shard_request *request = &requests[i];
        struct shard_file *file;
        dcp_status status = look_at_file(reader, request->piece, verification, needs, &file);
        if (status == DCP_OK) {
            if (request->entry->is_tensor)
                status = look_at_tensor(request, file, needs);
            shard_file_release(reader, file);
        }
        if (status != DCP_OK)
            return shard_reader_blame(reader, request->entry, request->piece, status);
    }
    return DCP_OK;
}

uint64_t shard_reader_open_memory(struct shard_reader *reader)
{
    uint64_t memory = 0;
    for (const struct shard_file *file = reader->newest; file; file = file->older)
        memory += file->memory;
    return memory;
}

/* Of one thread at a time. */
static uint64_t thread_memory(const struct shard_read_needs *needs,
                              const struct shard_read_how *how)
{
    /* A region's buffer, which is there four times on the way to a device, or one for checks. */
    uint64_t memory = ITEM_SIZE + SHARD_WINDOW_MOST + how->buffer_bytes * (needs->device ? 4 : 1);
    memory += needs->block + needs->unpacked;
    return how->plain ? memory : memory + shard_read_ahead_memory(needs->io);
}

uint64_t shard_read_needs_memory(const struct shard_read_needs *needs,
                                 const struct shard_read_how *how)
{
    uint64_t threads = how->thread_count;
    uint64_t files = how->open_files * needs->largest;
    if (needs->files < files)
        files = needs->files;
    uint64_t lists = shard_read_list_memory(needs->requests, needs->divided, how->thread_count);
    return SMALL_THINGS + files + needs->opening + lists + threads * thread_memory(needs, how) +
           (threads - 1) * THREAD_STACK_SIZE;
}

struct shard_read_how shard_read_how_least(void)
{
    return (struct shard_read_how){
        .thread_count = 1, .buffer_bytes = READ_REGION_LEAST, .open_files = 1, .plain = true};
}

void shard_read_needs_fit(const struct shard_read_needs *needs, uint64_t memory,
                          struct shard_read_how *how)
{
    const struct shard_read_how wanted = *how;
    while (shard_read_needs_memory(needs, how) > memory && how->thread_count > 1)
        how->thread_count--;
    if (shard_read_needs_memory(needs, how) <= memory)
        return;
    *how = wanted;
    how->plain = true;
    while (shard_read_needs_memory(needs, how) > memory && how->buffer_bytes > READ_REGION_LEAST)
        how->buffer_bytes /= 2;
    while (shard_read_needs_memory(needs, how) > memory && how->thread_count > 1)
        how->thread_count--;
    while (shard_read_needs_memory(needs, how) > memory && how->open_files > 1)
        how->open_files /= 2;
}
