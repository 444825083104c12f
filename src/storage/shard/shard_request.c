/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/shard/shard_request.h"

#include "base/error.h"
#include "format/streams/stream.h"
#include "state/copy.h"

/* Regions from here on are read in parts, of so much at least. */
#define DIVIDED_SIZE ((uint64_t)32 << 20)
#define PART_SIZE    ((uint64_t)8 << 20)

uint64_t shard_request_bytes(const struct shard_request *request)
{
    return (uint64_t)box_volume(request->region) * dcp_dtype_size(request->entry->dtype);
}

static bool is_packed(const struct metadata_piece *piece)
{
    return piece->zstd || (piece->view && piece->view->deflated);
}

/* Parts are slabs of the outermost dimension that can be divided; compressed streams have none. */
uint64_t shard_request_most_parts(const struct shard_request *request)
{
    uint64_t bytes = shard_request_bytes(request);
    if (bytes < DIVIDED_SIZE)
        return 1;
    int32_t dim = shard_parts_dim(request->region);
    if (is_packed(request->piece) || dim < 0)
        return 1;
    uint64_t parts = bytes / PART_SIZE, most = (uint64_t)request->region.sizes[dim];
    return parts < most ? parts : most;
}

/* Where the elements of a piece begin, and the bytes around them in their stream; false: it has no
 * such place. */
static bool find_elements(const struct metadata_entry *entry, const struct metadata_piece *piece,
                          uint64_t *first, uint64_t *around)
{
    const struct tensor_view *view = piece->view;
    uint64_t bytes, size = dcp_dtype_size(entry->dtype);
    if (is_packed(piece) || (!view && !metadata_is_in_stream(piece)))
        return false;
    *around = 0;
    if (view) {
        *first = view->data_offset + (uint64_t)view->storage_offset * size;
        return true;
    }
    if (!metadata_stream_bytes(entry, piece, &bytes) || bytes > piece->length)
        return false;
    *around = piece->length - bytes;
    *first = piece->offset + (piece->range ? (uint64_t)piece->range->first * size : 0);
    return true;
}

bool shard_request_range(const struct shard_request *request, struct shard_range *range)
{
    const struct metadata_piece *piece = request->piece;
    const struct box region = request->region;
    uint64_t first, around, size = dcp_dtype_size(request->entry->dtype);
    int64_t dense[DCP_MAX_DIMS];
    const int64_t *strides = piece->view ? piece->view->strides : dense;
    if (!find_elements(request->entry, piece, &first, &around))
        return false;
    shape_strides(region.ndim, piece->sizes, dense);
    for (int32_t i = 0; i < region.ndim; i++)
        first += (uint64_t)(region.offsets[i] - piece->offsets[i]) * (uint64_t)strides[i] * size;
    *range = (struct shard_range){.offset = first, .size = shard_request_bytes(request) + around};
    return copy_is_dense(region.ndim, region.sizes, strides);
}

void shard_request_lay_out(const struct shard_request *request, struct shard_range *range)
{
    const struct metadata_entry *entry = request->entry;
    const struct metadata_piece *piece = request->piece;
    struct stream_layout layout;
    if (piece->encoding != PIECE_STREAM || piece->zstd ||
        stream_tensor_layout(entry->dtype, entry->ndim, piece->sizes, &layout) != DCP_OK ||
        layout.length != piece->length)
        return;
    range->offset += layout.data_offset;
    range->size = shard_request_bytes(request);
}

bool shard_span_range(const struct metadata_entry *entry, const struct metadata_piece *piece,
                      int64_t from, int64_t end, struct shard_range *range)
{
    uint64_t first, around, size = dcp_dtype_size(entry->dtype);
    if (!find_elements(entry, piece, &first, &around))
        return false;
    *range = (struct shard_range){.offset = first + (uint64_t)from * size,
                                  .size = (uint64_t)(end - from) * size + around};
    return !piece->view || copy_is_dense(entry->ndim, piece->sizes, piece->view->strides);
}
