/* SPDX-License-Identifier: BSD-3-Clause */
/* Takes streams that other code has read, and objects as streams: for custom storage readers and
 * cooperative loads. */
#include "base/error.h"
#include "format/metadata/metadata_codec.h"
#include "format/streams/item.h"
#include "state/box.h"
#include "storage/shard/read_region.h"
#include "storage/shard/stored_item.h"

dcp_status shard_take_tensor(struct shard_reader *reader, const struct metadata_entry *entry,
                             const struct metadata_piece *piece, struct stream_bytes stream,
                             const struct state_chunk *target, dcp_dtype dtype,
                             dcp_verification verification)
{
    struct stored_item item;
    struct tensor_view view;
    int64_t offsets[DCP_MAX_DIMS];
    struct region_target to = {.dtype = dtype,
                               .device = target->device,
                               .element = target->data,
                               .strides = target->strides};
    struct box region = {entry->ndim, target->offsets, target->sizes};
    for (int32_t i = 0; i < entry->ndim; i++)
        offsets[i] = region.offsets[i] - piece->offsets[i];
    dcp_status status = stored_item_open_memory(&item, entry, piece, stream.bytes, stream.size);
    if (status == DCP_OK)
        status = stored_item_foresee(&item, verification, &view);
    if (status == DCP_OK && view.has_crc && !item.passing && verification != DCP_VERIFY_NONE)
        status = stored_item_check_record(&item, &view);
    if (status == DCP_OK && box_volume(region) != 0)
        status = read_region(&item.source, &view, offsets, region.sizes, &to);
    if (status == DCP_OK)
        status = stored_item_end(&item, &view, verification);
    if (status == DCP_OK) {
        bool checks = verification != DCP_VERIFY_NONE;
        bool held = checks && (item.passing ? item.crc_held : view.has_crc);
        uint64_t bytes = (uint64_t)box_volume(region) * dcp_dtype_size(entry->dtype);
        struct shard_tally tally = {.checked = held ? bytes : 0,
                                    .unchecked = held ? 0 : bytes,
                                    .bare = checks && !held ? bytes : 0};
        shard_reader_count(reader, &tally);
    }
    stored_item_close(&item);
    return shard_reader_blame(reader, entry, piece, status);
}

/* The source of a whole stream, appended to out. */
static dcp_status append_source(const struct byte_source *source, struct buffer *out)
{
    size_t size = (size_t)source->size;
    RETURN_IF_ERROR(buffer_reserve(out, size));
    dcp_status status = byte_source_read(source, 0, out->data + out->size, size);
    out->size += status == DCP_OK ? size : 0;
    return status;
}

/* The objects of a .pt file share one pickle; a single object is encoded as a stream. */
static dcp_status make_stream(const struct shard_reader *reader, const struct metadata_piece *piece,
                              struct buffer *out)
{
    dcp_state *object = NULL, *root = dcp_state_new();
    if (!root)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = pt_read_object(reader->metadata, piece, root->pool, &object);
    if (status == DCP_OK)
        status = item_encode_stream(object, out);
    dcp_state_free(root);
    return status;
}

dcp_status shard_read_stream(struct shard_reader *reader, const struct metadata_entry *entry,
                             const struct metadata_piece *piece, dcp_verification verification,
                             struct buffer *out)
{
    struct stored_item item;
    if (piece->encoding == PIECE_VIEW)
        return shard_reader_blame(reader, entry, piece, make_stream(reader, piece, out));
    dcp_status status = stored_item_open(&item, reader, entry, piece, verification, true);
    if (status == DCP_OK) {
        status = append_source(&item.source, out);
        stored_item_close(&item);
    }
    return shard_reader_blame(reader, entry, piece, status);
}

dcp_status shard_take_stream(const struct shard_reader *reader, const struct metadata_entry *entry,
                             const struct metadata_piece *piece, struct stream_bytes stream,
                             struct buffer *out)
{
    struct stored_item item;
    dcp_status status = stored_item_open_memory(&item, entry, piece, stream.bytes, stream.size);
    if (status == DCP_OK)
        status = append_source(&item.source, out);
    stored_item_close(&item);
    return shard_reader_blame(reader, entry, piece, status);
}

dcp_status shard_read_stored(struct shard_reader *reader, const struct metadata_entry *entry,
                             const struct metadata_piece *piece, dcp_verification verification,
                             uint64_t from, size_t size, void *bytes)
{
    struct stored_item item;
    dcp_status status = stored_item_open_raw(&item, reader, entry, piece, verification);
    if (status == DCP_OK) {
        status = byte_source_read(&item.source, from, bytes, size);
        stored_item_close(&item);
    }
    return shard_reader_blame(reader, entry, piece, status);
}

dcp_status shard_take_object(const struct shard_reader *reader, const struct metadata_entry *entry,
                             const struct metadata_piece *piece, const void *bytes, size_t size,
                             struct state_pool *pool, dcp_state **object)
{
    struct stored_item item;
    dcp_status status = stored_item_open_memory(&item, entry, piece, bytes, size);
    if (status == DCP_OK)
        status = item_read_object(item.source, pool, object);
    stored_item_close(&item);
    return shard_reader_blame(reader, entry, piece, status);
}
