/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/shard/shard_read_needs.h"

#include "base/error.h"
#include "base/memory_account.h"
#include "base/thread.h"
#include "format/streams/item_decompress.h"
#include "state/box.h"
#include "state/device_memory.h"
#include "state/record_rest.h"
#include "storage/shard/read_region.h"
#include "storage/shard/shard_request.h"
#include "storage/shard/stored_item.h"

/* What each thread takes to open an item: a small stream as a whole, the directory of a large one
 * and the pickle in it, an arena, running checksums. */
#define ITEM_SIZE ((uint64_t)256 << 10)
/* Lists of threads, and what surrounds blocks of memory. */
#define SMALL_THINGS ((uint64_t)16 << 10)
/* Usually more than the bytes around a tensor's elements; opening it needs ITEM_SIZE at most. */
#define USUAL_CONTAINER ((uint64_t)8 << 10)

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
    if ((*file)->footer == FOOTER_GOOD)
        needs->block = CHECKED_SOURCE_MEMORY;
    return DCP_OK;
}

/* What opening the piece takes, found out by doing it. */
static dcp_status measure_opening(struct shard_reader *reader, const struct metadata_entry *entry,
                                  const struct metadata_piece *piece, uint64_t *memory)
{
    struct stored_item item;
    struct tensor_view view;
    struct memory_span span;
    memory_span_start(&span);
    dcp_status status = stored_item_open(&item, reader, entry, piece, DCP_VERIFY_NONE, false);
    if (status == DCP_OK) {
        status = stored_item_foresee(&item, DCP_VERIFY_NONE, &view);
        stored_item_close(&item);
    }
    *memory = memory_span_end(&span);
    /* Its faults are reported when it is read. */
    return status == DCP_ERR_NO_MEMORY ? status : DCP_OK;
}

/* What decompressing takes. Files with a good footer are ours: each stream in them is one frame. */
static dcp_status look_at_compressed(struct shard_reader *reader, struct shard_file *file,
                                     const struct shard_request *request,
                                     struct shard_read_needs *needs, uint64_t *memory)
{
    const struct metadata_piece *piece = request->piece;
    struct byte_source packed;
    struct checked_source checked;
    bool ours = file->footer == FOOTER_GOOD;
    uint64_t source = decompressed_source_memory(DECOMPRESSED_INPUT), opening;
    *memory = 0;
    /* A piece that reaches beyond its file is reported when it is read. */
    if (piece->offset > shard_file_size(file) ||
        piece->length > shard_file_size(file) - piece->offset)
        return DCP_OK;
    checked_source_open(&checked, file, piece->offset, piece->length, &packed);
    dcp_status status = item_decompressor_memory(&packed, !ours, memory);
    checked_source_close(&checked);
    RETURN_IF_ERROR(status);
    if (stored_item_is_whole(request->entry, piece))
        *memory += piece->length + 2 * STORED_ITEM_WHOLE;
    else
        *memory += source;
    needs->passing = needs->passing || !stored_item_is_whole(request->entry, piece);
    if (ours)
        return DCP_OK;
    RETURN_IF_ERROR(measure_opening(reader, request->entry, piece, &opening));
    *memory = opening > *memory ? opening : *memory;
    return DCP_OK;
}

/* Whether a stream has more around its elements than ours and PyTorch's have as a rule. */
static bool is_unusual(const struct metadata_entry *entry, const struct metadata_piece *piece)
{
    uint64_t bytes;
    return metadata_is_in_stream(piece) && metadata_stream_bytes(entry, piece, &bytes) &&
           piece->length > bytes && piece->length - bytes > USUAL_CONTAINER;
}

static bool is_whole(const struct shard_request *request)
{
    const struct metadata_piece *piece = request->piece;
    const struct box stored = {request->entry->ndim, piece->offsets, piece->sizes};
    return box_equal(stored, request->region);
}

static dcp_status look_at_tensor(struct shard_reader *reader, const struct shard_request *request,
                                 struct shard_file *file, struct shard_read_needs *needs)
{
    const struct metadata_piece *piece = request->piece;
    uint64_t memory = 0;
    if (piece->zstd)
        RETURN_IF_ERROR(look_at_compressed(reader, file, request, needs, &memory));
    else if (is_unusual(request->entry, piece))
        RETURN_IF_ERROR(measure_opening(reader, request->entry, piece, &memory));
    else if (piece->view && piece->view->deflated &&
             __builtin_add_overflow(piece->view->data_length, piece->view->storage_bytes, &memory))
        memory = UINT64_MAX / 4;
    if (file->footer != FOOTER_GOOD && !is_whole(request) && memory < RECORD_REST_SMALL)
        memory = RECORD_REST_SMALL; /* a small record, to check it */
    if (memory > needs->item)
        needs->item = memory;
    needs->requests++;
    needs->divided += shard_request_most_parts(request) > 1;
    needs->device = needs->device || !device_is_host(&request->target->device);
    return DCP_OK;
}

/* What is in memory, or only other ranks see. */
static bool needs_no_file(struct shard_reader *reader, const struct metadata_piece *piece)
{
    return piece->encoding == PIECE_HELD ||
           (reader->metadata->file_sizes && !shard_reader_sees(reader, piece->file));
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
        if (needs_no_file(reader, request->piece))
            continue;
        dcp_status status = look_at_file(reader, request->piece, verification, needs, &file);
        if (status == DCP_OK) {
            if (request->entry->is_tensor)
                status = look_at_tensor(reader, request, file, needs);
            shard_file_release(reader, file);
        }
        if (status != DCP_OK)
            return shard_reader_blame(reader, request->entry, request->piece, status);
    }
    needs->request = reader->directory.traits.request_size; /* open, now that files were */
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
    /* A region's buffer, which is there four times on the way to a device, or one for checks; and
     * one to decompress into for several regions. */
    uint64_t buffers = (needs->device ? 4u : 1u) + (needs->passing ? 1u : 0u);
    uint64_t memory = ITEM_SIZE + how->buffer_bytes * buffers;
    memory += needs->block + needs->item;
    memory += read_window_memory(SHARD_WINDOW_MOST);
    if (how->plain)
        return memory;
    size_t input = needs->passing ? stored_item_input(needs->io, needs->request) : 0;
    /* Of what is read, and of what is read next. */
    return memory + 2 * shard_read_ahead_memory(needs->io) +
           (input > DECOMPRESSED_INPUT ? input : 0);
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
