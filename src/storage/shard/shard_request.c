/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/shard/shard_request.h"

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

bool shard_request_range(const struct shard_request *request, struct shard_range *range)
{
    const struct metadata_piece *piece = request->piece;
    const struct box region = request->region;
    const struct tensor_view *view = piece->view;
    uint64_t first = 0, around = 0, bytes, size = dcp_dtype_size(request->entry->dtype);
    int64_t dense[DCP_MAX_DIMS];
    const int64_t *strides = dense;
    if (is_packed(piece) || (!view && !metadata_is_in_stream(piece)))
        return false;
    if (view) {
        strides = view->strides;
        first = view->data_offset + (uint64_t)view->storage_offset * size;
    } else {
        if (!metadata_stream_bytes(request->entry, piece, &bytes) || bytes > piece->length)
            return false;
        shape_strides(region.ndim, piece->sizes, dense);
        around = piece->length - bytes;
        first = piece->offset + (piece->range ? (uint64_t)piece->range->first * size : 0);
    }
    for (int32_t i = 0; i < region.ndim; i++)
        first += (uint64_t)(region.offsets[i] - piece->offsets[i]) * (uint64_t)strides[i] * size;
    *range = (struct shard_range){.offset = first, .size = shard_request_bytes(request) + around};
    return copy_is_dense(region.ndim, region.sizes, strides);
}
