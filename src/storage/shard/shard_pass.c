/* SPDX-License-Identifier: BSD-3-Clause */
/* Passes stored streams on without changing them. */
#include "base/error.h"
#include "base/memory.h"
#include "format/streams/item.h"
#include "storage/shard/stored_item.h"

#define PIECE ((size_t)1 << 20)

static dcp_status pass_source(const struct byte_source *source, dcp_sink sink, void *context)
{
    const void *bytes = byte_source_at(source, 0, source->size);
    if (bytes)
        return error_checked(sink(context, bytes, (size_t)source->size), "a sink");
    unsigned char *space = memory_allocate(PIECE);
    dcp_status status = DCP_OK;
    if (!space)
        return error_no_memory(PIECE, "passing on a stream");
    for (uint64_t done = 0; done < source->size && status == DCP_OK; done += PIECE) {
        uint64_t left = source->size - done;
        size_t size = left < PIECE ? (size_t)left : PIECE;
        status = byte_source_read(source, done, space, size);
        if (status == DCP_OK)
            status = error_checked(sink(context, space, size), "a sink");
    }
    memory_release(space);
    return status;
}

/* An object of a .pt file, where all share one pickle. */
static dcp_status pass_made(struct shard_reader *reader, const struct metadata_entry *entry,
                            const struct metadata_piece *piece, dcp_verification verification,
                            dcp_sink sink, void *context)
{
    struct buffer stream;
    buffer_init(&stream, 0);
    dcp_status status = shard_read_stream(reader, entry, piece, verification, &stream);
    if (status == DCP_OK)
        status = error_checked(sink(context, stream.data, stream.size), "a sink");
    buffer_free(&stream);
    return status;
}

/* A stream that is not compressed is checked by blocks each time it is read. */
static dcp_status open_stream(struct stored_item *item, struct shard_reader *reader,
                              const struct metadata_entry *entry,
                              const struct metadata_piece *piece, dcp_verification verification)
{
    if (piece->zstd)
        return stored_item_open(item, reader, entry, piece, verification, true);
    RETURN_IF_ERROR(stored_item_open_raw(item, reader, entry, piece, verification));
    checked_source_widen(&item->checked, &item->source);
    return DCP_OK;
}

/* That the stream is whole, and a tensor's what the metadata says. */
static dcp_status check_stream(struct stored_item *item)
{
    struct tensor_view view;
    if (item->passing)
        RETURN_IF_ERROR(stored_item_hold(item));
    RETURN_IF_ERROR(item_check_stream(item->source));
    if (!item->entry->is_tensor)
        return DCP_OK;
    RETURN_IF_ERROR(item_open_tensor(item->source, &item->arena, &view));
    return item_check_view(&view, item->entry->dtype, item->entry->ndim, item->piece->sizes);
}

static dcp_status pass_stored(struct shard_reader *reader, const struct metadata_entry *entry,
                              const struct metadata_piece *piece, dcp_verification verification,
                              dcp_sink sink, void *context)
{
    struct stored_item item;
    dcp_status status = open_stream(&item, reader, entry, piece, verification);
    if (status != DCP_OK)
        return shard_reader_blame(reader, entry, piece, status);
    status = shard_reader_blame(reader, entry, piece, check_stream(&item));
    if (status == DCP_OK)
        status = pass_source(&item.source, sink, context);
    stored_item_close(&item);
    return status;
}

dcp_status shard_pass_stream(struct shard_reader *reader, const struct metadata_entry *entry,
                             const struct metadata_piece *piece, dcp_verification verification,
                             dcp_sink sink, void *context)
{
    if (piece->encoding == PIECE_STREAM)
        return pass_stored(reader, entry, piece, verification, sink, context);
    if (!entry->is_tensor)
        return pass_made(reader, entry, piece, verification, sink, context);
    return dcp_error_set(DCP_ERR_UNSUPPORTED,
                         "%s: its elements are not stored as a separate stream", entry->name);
}
