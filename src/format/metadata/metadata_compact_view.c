/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/metadata/metadata_compact_view.h"

#include "base/checked.h"
#include "base/error.h"

enum view_flags {
    VIEW_CONJUGATE = 1,
    VIEW_NEGATIVE = 2,
    VIEW_SWAPPED = 4,
    VIEW_DEFLATED = 8,
    VIEW_CRC = 16
};

void metadata_compact_append_view(const struct metadata_piece *piece, struct buffer *out)
{
    const struct tensor_view *view = piece->view;
    buffer_append_u8(
        out, (uint8_t)((view->conjugate ? VIEW_CONJUGATE : 0) |
                       (view->negative ? VIEW_NEGATIVE : 0) | (view->swapped ? VIEW_SWAPPED : 0) |
                       (view->deflated ? VIEW_DEFLATED : 0) | (view->has_crc ? VIEW_CRC : 0)));
    buffer_append_varint(out, (uint64_t)view->storage_offset);
    buffer_append_varint(out, view->storage_bytes);
    buffer_append_varint(out, view->crc);
    for (int32_t d = 0; d < view->ndim; d++)
        buffer_append_varint(out, (uint64_t)view->strides[d]);
}

/* Whether every element is inside of the storage. */
static bool is_inside(const struct tensor_view *view)
{
    int64_t last = view->storage_offset, bytes;
    if (view->storage_offset < 0 || (!view->deflated && view->data_length < view->storage_bytes))
        return false;
    for (int32_t d = 0; d < view->ndim; d++) {
        int64_t reach;
        if (view->sizes[d] == 0)
            return true;
        if (view->strides[d] < 0 ||
            !checked_multiply_i64(view->sizes[d] - 1, view->strides[d], &reach) ||
            !checked_add_i64(last, reach, &last))
            return false;
    }
    return checked_add_i64(last, 1, &last) &&
           checked_multiply_i64(last, (int64_t)dcp_dtype_size(view->dtype), &bytes) &&
           (uint64_t)bytes <= view->storage_bytes;
}

dcp_status metadata_compact_read_view(struct reader *reader, struct arena *arena,
                                      const struct metadata_entry *entry,
                                      struct metadata_piece *piece)
{
    struct tensor_view *view = arena_allocate(arena, sizeof *view);
    int64_t *strides = arena_allocate_array(arena, (size_t)entry->ndim, sizeof *strides);
    if (!view || !strides)
        return error_no_memory(sizeof *view, "metadata in compact form");
    unsigned flags = reader_u8(reader);
    *view = (struct tensor_view){.dtype = entry->dtype,
                                 .ndim = entry->ndim,
                                 .sizes = piece->sizes,
                                 .strides = strides,
                                 .storage_offset = (int64_t)reader_varint(reader),
                                 .conjugate = (flags & VIEW_CONJUGATE) != 0,
                                 .negative = (flags & VIEW_NEGATIVE) != 0,
                                 .swapped = (flags & VIEW_SWAPPED) != 0,
                                 .deflated = (flags & VIEW_DEFLATED) != 0,
                                 .has_crc = (flags & VIEW_CRC) != 0,
                                 .data_offset = piece->offset,
                                 .data_length = piece->length};
    view->storage_bytes = reader_varint(reader);
    view->crc = (uint32_t)reader_varint(reader);
    for (int32_t d = 0; d < entry->ndim; d++)
        strides[d] = (int64_t)reader_varint(reader);
    piece->view = view;
    return !reader->failed && is_inside(view)
               ? DCP_OK
               : dcp_error_set(DCP_ERR_FORMAT,
                               "metadata in compact form: \"%s\" reaches beyond its "
                               "storage",
                               entry->name);
}

void metadata_compact_append_range(const struct metadata_piece *piece, struct buffer *out)
{
    const struct stream_range *range = piece->range;
    buffer_append_varint(out, (uint64_t)range->ndim);
    for (int32_t d = 0; d < range->ndim; d++)
        buffer_append_varint(out, (uint64_t)range->sizes[d]);
    buffer_append_varint(out, (uint64_t)range->first);
}

dcp_status metadata_compact_read_range(struct reader *reader, struct arena *arena,
                                       const struct metadata_entry *entry,
                                       struct metadata_piece *piece)
{
    uint64_t ndim = reader_varint(reader), bytes;
    if (reader->failed || ndim > DCP_MAX_DIMS)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "metadata in compact form: \"%s\" is in a stream of too many "
                             "dimensions",
                             entry->name);
    struct stream_range *range = arena_allocate(arena, sizeof *range);
    int64_t *sizes = arena_allocate_array(arena, (size_t)ndim, sizeof *sizes);
    if (!range || !sizes)
        return error_no_memory(sizeof *range, "metadata in compact form");
    for (uint64_t d = 0; d < ndim; d++)
        sizes[d] = (int64_t)reader_varint(reader);
    *range = (struct stream_range){
        .ndim = (int32_t)ndim, .sizes = sizes, .first = (int64_t)reader_varint(reader)};
    piece->range = range;
    return !reader->failed && metadata_range_fits(entry, piece) &&
                   metadata_stream_bytes(entry, piece, &bytes) &&
                   (piece->zstd || piece->length >= bytes)
               ? DCP_OK
               : dcp_error_set(DCP_ERR_FORMAT,
                               "metadata in compact form: \"%s\" reaches beyond the tensor in its "
                               "stream",
                               entry->name);
}
