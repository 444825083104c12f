/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/shard/stored_item.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/metadata/metadata_codec.h"
#include "format/streams/item.h"
#include "format/streams/item_decompress.h"
#include "format/streams/stream.h"
#include "format/zip/zip.h"
#include "state/box.h"
#include "state/copy.h"
#include "state/node.h"
#include "storage/shard/shard_footer.h"

/* Streams up to here are read at once if a part of them is wanted: not more than reading the
 * container costs anyway. */
#define TINY_STREAM ((uint64_t)16 << 10)

#define CHECK_SIZE ((size_t)1 << 20)

/* The most that a container adds to the data of a tensor, with the largest alignment of records
 * that PyTorch supports; and how far an object may grow when it is decompressed: a fixed size, and
 * a multiple of its stored size. */
#define CONTAINER_SIZE ((uint64_t)1 << 20)
#define OBJECT_SIZE    ((uint64_t)64 << 20)
#define OBJECT_EXPANDS 64

/* Inside what the file holds besides its footer. */
static dcp_status check_range(const struct shard_file *file, const struct metadata_piece *piece)
{
    /* A view of a storage has its own ranges; a tensor without elements may have no bytes. */
    if (!metadata_is_in_stream(piece))
        return DCP_OK;
    if (piece->length == 0)
        return dcp_error_set(DCP_ERR_FORMAT, "the stream has no bytes");
    if (piece->offset > file->content_length ||
        piece->length > file->content_length - piece->offset)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "%" PRIu64 " bytes expected, but the file has %" PRIu64 " in all",
                             piece->length, file->content_length);
    return DCP_OK;
}

static bool is_in_window(const struct metadata_piece *piece, const struct read_window *window)
{
    return window && piece->offset >= window->start && piece->length <= window->size &&
           piece->offset - window->start <= window->size - piece->length;
}

/* Has the whole stream in memory, and makes that the source. */
static dcp_status load_stream(struct stored_item *item, const struct read_window *window)
{
    const struct metadata_piece *piece = item->piece;
    item->in_memory = true;
    if (is_in_window(piece, window)) {
        item->trusted = window->trusted;
        item->source = byte_source_memory(window->bytes + (piece->offset - window->start),
                                          (size_t)piece->length);
        return DCP_OK;
    }
    size_t size = (size_t)item->piece->length;
    void *bytes = item->piece->length <= SIZE_MAX ? memory_allocate(size) : NULL;
    if (!bytes)
        return error_no_memory(size, "a stored item");
    dcp_status status = byte_source_read(&item->source, 0, bytes, size);
    if (status != DCP_OK) {
        memory_release(bytes);
        return status;
    }
    item->memory = bytes;
    item->in_memory = true;
    item->source = byte_source_memory(bytes, size);
    return DCP_OK;
}

/* What may come out is known for a tensor, and limited by what is stored for an object. */
static uint64_t decompressed_limit(const struct metadata_entry *entry,
                                   const struct metadata_piece *piece)
{
    uint64_t bytes;
    if (entry->is_tensor)
        return metadata_stream_bytes(entry, piece, &bytes) ? bytes + CONTAINER_SIZE : 0;
    return __builtin_mul_overflow(piece->length, OBJECT_EXPANDS, &bytes) ? INT64_MAX
                                                                         : bytes + OBJECT_SIZE;
}

/* Objects are parsed in any order, and small tensors do not justify a separate case. */
bool stored_item_is_whole(const struct metadata_entry *entry, const struct metadata_piece *piece)
{
    uint64_t bytes;
    return !entry->is_tensor || !metadata_stream_bytes(entry, piece, &bytes) ||
           bytes <= STORED_ITEM_WHOLE;
}

size_t stored_item_input(uint32_t io, size_t request)
{
    bool direct = (io & ~(uint32_t)DCP_IO_BUFFERED) != 0;
    size_t least = direct ? STORED_ITEM_DIRECT_INPUT : DECOMPRESSED_INPUT;
    size_t wanted = request < STORED_ITEM_INPUT_MOST ? request : STORED_ITEM_INPUT_MOST;
    return wanted > least ? wanted : least;
}

static size_t choose_input(const struct shard_reader *reader)
{
    if (!reader || reader->how.plain)
        return DECOMPRESSED_INPUT;
    return stored_item_input(reader->io, reader->directory.traits.request_size);
}

/* Decompresses the stream as it is read. */
static dcp_status let_pass(struct stored_item *item)
{
    item->passing = true;
    return decompressed_source_open(&item->decompressed, item->source, choose_input(item->reader),
                                    decompressed_limit(item->entry, item->piece), &item->source);
}

static dcp_status decompress_stream(struct stored_item *item, const struct read_window *window)
{
    void *bytes;
    size_t size;
    if (!stored_item_is_whole(item->entry, item->piece))
        return let_pass(item);
    RETURN_IF_ERROR(load_stream(item, window));
    const void *packed = item->source.context;
    RETURN_IF_ERROR(item_decompress(packed, (size_t)item->source.size,
                                    decompressed_limit(item->entry, item->piece), &bytes, &size));
    memory_release(item->memory);
    item->memory = bytes;
    item->source = byte_source_memory(bytes, size);
    return DCP_OK;
}

/* A window that holds several pieces already keeps their file in use. */
static dcp_status acquire_file(struct stored_item *item, dcp_verification verification,
                               const struct read_window *window)
{
    struct shard_file *file;
    item->borrowed = window && window->file && window->file->index == item->piece->file;
    if (item->borrowed)
        file = window->file;
    else
        RETURN_IF_ERROR(shard_file_acquire(item->reader, item->piece->file, verification, &file));
    item->file = file;
    return DCP_OK;
}

dcp_status stored_item_open(struct stored_item *item, struct shard_reader *reader,
                            const struct metadata_entry *entry, const struct metadata_piece *piece,
                            dcp_verification verification, bool whole)
{
    return stored_item_open_in(item, reader, entry, piece, verification, whole, NULL);
}

/* The bytes as they are stored. */
static dcp_status open_source(struct stored_item *item, struct shard_reader *reader,
                              const struct metadata_entry *entry,
                              const struct metadata_piece *piece, dcp_verification verification,
                              const struct read_window *window)
{
    *item = (struct stored_item){.reader = reader, .entry = entry, .piece = piece};
    arena_init(&item->arena, 0);
    bool is_stream = metadata_is_in_stream(piece);
    bool is_range = piece->encoding == PIECE_RANGE;
    if (piece->encoding == PIECE_HELD) {
        item->in_memory = true;
        item->source = byte_source_memory(piece->object, (size_t)piece->length);
        return DCP_OK;
    }
    RETURN_IF_ERROR(acquire_file(item, verification, window));
    dcp_status status = check_range(item->file, piece);
    /* A footer lists what the stream is to its own checkpoint, not a range of it. */
    item->listed =
        status == DCP_OK && !is_range && shard_footer_has_piece(item->file, entry, piece);
    if (status == DCP_OK && verification != DCP_VERIFY_NONE && !item->listed && !is_range &&
        item->file->footer == FOOTER_GOOD)
        status = shard_footer_unlisted(item->file, piece);
    if (status == DCP_OK)
        checked_source_open(&item->checked, item->file, is_stream ? piece->offset : 0,
                            is_stream ? piece->length : shard_file_size(item->file), &item->source);
    if (status == DCP_OK && window)
        item->checked.batch = window->batch;
    return status;
}

dcp_status stored_item_open_raw(struct stored_item *item, struct shard_reader *reader,
                                const struct metadata_entry *entry,
                                const struct metadata_piece *piece, dcp_verification verification)
{
    dcp_status status = open_source(item, reader, entry, piece, verification, NULL);
    if (status != DCP_OK)
        stored_item_close(item);
    return status;
}

dcp_status stored_item_open_in(struct stored_item *item, struct shard_reader *reader,
                               const struct metadata_entry *entry,
                               const struct metadata_piece *piece, dcp_verification verification,
                               bool whole, const struct read_window *window)
{
    bool is_stream = metadata_is_in_stream(piece);
    dcp_status status = open_source(item, reader, entry, piece, verification, window);
    if (status == DCP_OK && piece->zstd)
        status = decompress_stream(item, window);
    else if (status == DCP_OK && is_stream &&
             (piece->length <= (whole ? STORED_ITEM_SMALL : TINY_STREAM) ||
              is_in_window(piece, window)))
        status = load_stream(item, window);
    if (status != DCP_OK)
        stored_item_close(item);
    return status;
}

static bool is_compressed(const void *bytes, size_t size)
{
    static const unsigned char frame[] = {0x28, 0xb5, 0x2f, 0xfd};
    return size >= sizeof frame && memcmp(bytes, frame, sizeof frame) == 0;
}

dcp_status stored_item_open_memory(struct stored_item *item, const struct metadata_entry *entry,
                                   const struct metadata_piece *piece, const void *bytes,
                                   size_t size)
{
    *item = (struct stored_item){.entry = entry, .piece = piece, .in_memory = true};
    arena_init(&item->arena, 0);
    if (!metadata_is_in_stream(piece))
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "is not stored as a separate stream");
    bool compressed = piece->zstd && is_compressed(bytes, size);
    if ((!piece->zstd || compressed) && size != piece->length)
        return dcp_error_set(DCP_ERR_FORMAT, "%zu bytes, the metadata says %" PRIu64, size,
                             piece->length);
    item->source = byte_source_memory(bytes, size);
    if (compressed && !stored_item_is_whole(item->entry, item->piece)) {
        item->in_memory = false;
        return let_pass(item);
    }
    if (compressed) {
        size_t stored_size = size;
        RETURN_IF_ERROR(item_decompress(bytes, stored_size,
                                        decompressed_limit(item->entry, item->piece), &item->memory,
                                        &size));
        bytes = item->memory;
    }
    item->source = byte_source_memory(bytes, size);
    return DCP_OK;
}

/* The size that the record claims was compared with what the tensor needs; here it is compared with
 * what the stored bytes may become. */
static dcp_status inflate_storage(struct stored_item *item, struct tensor_view *view)
{
    RETURN_IF_ERROR(zip_check_inflated("data", view->data_length, view->storage_bytes));
    if (view->data_offset > item->source.size ||
        view->data_length > item->source.size - view->data_offset)
        return dcp_error_set(DCP_ERR_FORMAT, "the deflated data reaches beyond its file");
    void *stored = memory_allocate((size_t)view->data_length);
    item->inflated = memory_allocate((size_t)view->storage_bytes);
    dcp_status status = DCP_OK;
    if (!stored || !item->inflated)
        status = error_no_memory((size_t)view->storage_bytes, "an inflated storage");
    if (status == DCP_OK)
        status =
            byte_source_read(&item->source, view->data_offset, stored, (size_t)view->data_length);
    if (status == DCP_OK)
        status = zip_inflate(stored, (size_t)view->data_length, item->inflated,
                             (size_t)view->storage_bytes);
    memory_release(stored);
    RETURN_IF_ERROR(status);
    item->in_memory = true;
    item->passing = false;
    item->source = byte_source_memory(item->inflated, (size_t)view->storage_bytes);
    view->deflated = false;
    view->data_offset = 0;
    view->data_length = view->storage_bytes;
    return DCP_OK;
}

/* Whether a range is all of its stream's tensor, in its shape. */
static bool is_all_of_stream(const struct metadata_entry *entry, const struct metadata_piece *piece)
{
    const struct metadata_shape shape = metadata_stream_shape(entry, piece);
    return shape.ndim == entry->ndim &&
           memcmp(shape.sizes, piece->sizes, (size_t)shape.ndim * sizeof *shape.sizes) == 0;
}

dcp_status stored_item_check_view(struct stored_item *item, struct tensor_view *view)
{
    const struct metadata_entry *entry = item->entry;
    const struct metadata_piece *piece = item->piece;
    const struct metadata_shape shape = metadata_stream_shape(entry, piece);
    RETURN_IF_ERROR(item_check_view(view, entry->dtype, shape.ndim, shape.sizes));
    if (piece->encoding != PIECE_RANGE || is_all_of_stream(entry, piece))
        return DCP_OK;
    if (!copy_is_dense(view->ndim, view->sizes, view->strides))
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "a part of a tensor that is not stored row-major; dcp convert takes "
                             "it");
    shape_strides(entry->ndim, piece->sizes, item->strides);
    view->ndim = entry->ndim;
    view->sizes = piece->sizes;
    view->strides = item->strides;
    view->storage_offset += piece->range->first;
    return DCP_OK;
}

dcp_status stored_item_view(struct stored_item *item, struct tensor_view *view)
{
    if (item->passing)
        RETURN_IF_ERROR(decompressed_source_end(&item->decompressed, &item->source));
    if (metadata_is_in_stream(item->piece))
        RETURN_IF_ERROR(item_open_tensor(item->source, &item->arena, view));
    else
        *view = *item->piece->view;
    RETURN_IF_ERROR(stored_item_check_view(item, view));
    return view->deflated ? inflate_storage(item, view) : DCP_OK;
}

dcp_status stored_item_lay_out(struct stored_item *item, struct tensor_view *view, bool *known)
{
    *known = false;
    const struct metadata_entry *entry = item->entry;
    const struct metadata_piece *piece = item->piece;
    struct stream_layout layout;
    if (!item->listed || !entry->is_tensor || piece->zstd || (item->in_memory && !item->trusted))
        return DCP_OK;
    RETURN_IF_ERROR(stream_tensor_layout(entry->dtype, entry->ndim, piece->sizes, &layout));
    if (layout.length != piece->length)
        return DCP_OK;
    shape_strides(entry->ndim, piece->sizes, item->strides);
    *view = (struct tensor_view){.dtype = entry->dtype,
                                 .ndim = entry->ndim,
                                 .sizes = piece->sizes,
                                 .strides = item->strides,
                                 .data_offset = layout.data_offset,
                                 .data_length = layout.data_length,
                                 .storage_bytes = layout.data_length};
    *known = true;
    return DCP_OK;
}

uint64_t stored_item_place(const struct stored_item *item, const struct tensor_view *view)
{
    if (item->piece->zstd || item->inflated)
        return item->piece->offset;
    return view->data_offset + (metadata_is_in_stream(item->piece) ? item->piece->offset : 0);
}

/* The CRC of a record, which is read in parts. */
static dcp_status compute_crc(const struct stored_item *item, const struct tensor_view *view,
                              uint32_t *crc)
{
    uint64_t size = CHECK_SIZE;
    if (item->reader && item->reader->how.buffer_bytes < size)
        size = item->reader->how.buffer_bytes;
    if (view->data_length < size)
        size = view->data_length;
    unsigned char *bytes = memory_allocate((size_t)size);
    if (!bytes)
        return error_no_memory((size_t)size, "a buffer for checking");
    dcp_status status = DCP_OK;
    *crc = 0;
    for (uint64_t done = 0; status == DCP_OK && done < view->data_length; done += size) {
        if (size > view->data_length - done)
            size = view->data_length - done;
        status = byte_source_read(&item->source, view->data_offset + done, bytes, (size_t)size);
        if (status == DCP_OK && view->has_crc)
            *crc = crc32_update(*crc, bytes, (size_t)size);
    }
    memory_release(bytes);
    return status;
}

dcp_status stored_item_check_record(const struct stored_item *item, const struct tensor_view *view)
{
    uint32_t crc = 0;
    dcp_status status = DCP_OK;
    const void *bytes = byte_source_at(&item->source, view->data_offset, view->data_length);
    if (bytes)
        crc = crc32_update(0, bytes, (size_t)view->data_length);
    else
        status = compute_crc(item, view, &crc);
    if (status == DCP_OK && view->has_crc && crc != view->crc)
        status = checked_crc_error(stored_item_place(item, view), view->crc, crc);
    return status;
}

/* Replaces the bytes in memory. */
static void take_memory(struct stored_item *item, void *bytes, size_t size)
{
    memory_release(item->memory);
    item->memory = bytes;
    item->in_memory = true;
    item->source = byte_source_memory(bytes, size);
}

dcp_status stored_item_hold_record(struct stored_item *item, struct tensor_view *view)
{
    size_t size = (size_t)view->data_length;
    void *bytes = memory_allocate(size);
    if (!bytes)
        return error_no_memory(size, "a record");
    dcp_status status = byte_source_read(&item->source, view->data_offset, bytes, size);
    uint32_t crc = status == DCP_OK ? crc32_update(0, bytes, size) : 0;
    if (status == DCP_OK && crc != view->crc)
        status = checked_crc_error(stored_item_place(item, view), view->crc, crc);
    if (status != DCP_OK) {
        memory_release(bytes);
        return status;
    }
    take_memory(item, bytes, size);
    view->data_offset = 0;
    return DCP_OK;
}

dcp_status stored_item_load_again(struct stored_item *item)
{
    struct byte_source source;
    size_t size = (size_t)item->piece->length;
    void *bytes = memory_allocate(size);
    if (!bytes)
        return error_no_memory(size, "a stored item");
    checked_source_close(&item->checked);
    checked_source_open(&item->checked, item->file, item->piece->offset, size, &source);
    checked_source_widen(&item->checked, &source);
    dcp_status status = byte_source_read(&source, 0, bytes, size);
    if (status != DCP_OK) {
        memory_release(bytes);
        return status;
    }
    take_memory(item, bytes, size);
    return DCP_OK;
}

dcp_status stored_item_check_object(const struct stored_item *item, const struct metadata *metadata)
{
    dcp_state *root = dcp_state_new(), *object;
    struct state_pool *pool = root ? state_pool_new(root->root) : NULL;
    dcp_status status = DCP_ERR_NO_MEMORY;
    if (pool && item->piece->encoding == PIECE_VIEW)
        status = pt_read_object(metadata, item->piece, pool, &object);
    else if (pool)
        status = item_read_object(item->source, pool, &object);
    state_pool_free(pool);
    dcp_state_free(root);
    return status;
}

void stored_item_close(struct stored_item *item)
{
    if (item->file) {
        checked_source_close(&item->checked);
        if (!item->borrowed)
            shard_file_release(item->reader, item->file);
    }
    decompressed_source_close(&item->decompressed);
    memory_release(item->inflated);
    memory_release(item->memory);
    arena_free(&item->arena);
}
