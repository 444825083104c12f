/* SPDX-License-Identifier: BSD-3-Clause */
/* Pieces that lie in streams of torch.save. */
#include "state/metadata.h"

bool metadata_is_in_stream(const struct metadata_piece *piece)
{
    return piece->encoding == PIECE_STREAM || piece->encoding == PIECE_RANGE;
}

struct metadata_shape metadata_stream_shape(const struct metadata_entry *entry,
                                            const struct metadata_piece *piece)
{
    if (piece->encoding == PIECE_RANGE)
        return (struct metadata_shape){piece->range->ndim, piece->range->sizes};
    return (struct metadata_shape){entry->ndim, piece->sizes};
}

bool metadata_stream_bytes(const struct metadata_entry *entry, const struct metadata_piece *piece,
                           uint64_t *bytes)
{
    const struct metadata_shape shape = metadata_stream_shape(entry, piece);
    return shape_bytes(shape.ndim, shape.sizes, entry->dtype, bytes);
}

bool metadata_range_fits(const struct metadata_entry *entry, const struct metadata_piece *piece)
{
    const struct stream_range *range = piece->range;
    int64_t there, wanted;
    return shape_volume(range->ndim, range->sizes, &there) &&
           shape_volume(entry->ndim, piece->sizes, &wanted) && range->first >= 0 &&
           range->first <= there && wanted <= there - range->first;
}
