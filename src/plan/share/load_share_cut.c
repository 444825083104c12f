/* SPDX-License-Identifier: BSD-3-Clause */
/* Where regions may be cut, so that several ranks read parts of them, and all is checked. */
#include "plan/share/load_share_assign.h"
#include "state/record_rest.h"

/* Large tensors begin at a page, and blocks with a checksum are no larger: cuts at these places
 * cost nothing; at others a block is read twice to be checked. */
#define CUT_BLOCK ((uint64_t)1 << 20)
#define DATA_PAGE ((uint64_t)4096)
/* The largest block with a checksum. */
#define END_BLOCK ((uint64_t)64 << 10)

static const struct metadata_piece *piece_of(const struct metadata *metadata,
                                             const struct share_region *region)
{
    return &metadata->entries[region->entry].pieces[region->piece];
}

static uint64_t region_bytes(const struct metadata_entry *entry, const struct share_region *region)
{
    return (uint64_t)box_volume(region->box) * dcp_dtype_size(entry->dtype);
}

/* Of the record that a piece lies in; what overflows is refused when the stream is read. */
static uint64_t record_bytes(const struct metadata_entry *entry, const struct metadata_piece *piece)
{
    uint64_t bytes;
    if (!metadata_is_in_stream(piece))
        return piece->view->data_length;
    return metadata_stream_bytes(entry, piece, &bytes) ? bytes : UINT64_MAX;
}

/* Whether a region is all of its piece, and that all that its stream or storage has. */
static bool is_whole(const struct metadata *metadata, const struct share_region *region)
{
    const struct metadata_entry *entry = &metadata->entries[region->entry];
    const struct metadata_piece *piece = piece_of(metadata, region);
    return box_equal(region->box, share_piece_box(entry, region->piece)) &&
           (piece->encoding == PIECE_STREAM ||
            region_bytes(entry, region) == record_bytes(entry, piece));
}

/* Whether a piece's data may have a separate checksum; for a stream this is known when it is read.
 */
static bool may_have_sum(const struct metadata_piece *piece)
{
    return metadata_is_in_stream(piece) || piece->view->has_crc;
}

/* Compressed streams have to be read from their beginning. Data with one checksum can be read in
 * parts if all of it is, so that the sums of these can be joined, which those of stripes are not;
 * some of it only where that would not be checked by who reads all of that, either, or is checked
 * block by block. */
bool share_can_be_cut(const struct metadata *metadata, const struct share_rules *rules,
                      const struct share_region *region)
{
    const struct metadata_piece *piece = piece_of(metadata, region);
    const struct metadata_entry *entry = &metadata->entries[region->entry];
    if (rules->objects || piece->zstd || (!metadata_is_in_stream(piece) && piece->view->deflated))
        return false;
    if (region->striped)
        return rules->blocks || !may_have_sum(piece) || rules->verification == DCP_VERIFY_NONE;
    return rules->blocks || !may_have_sum(piece) || is_whole(metadata, region) ||
           !record_rest_pays(rules->verification, region_bytes(entry, region),
                             record_bytes(entry, piece));
}

/* Where a piece's data begins in its file, as far as is known without reading it. */
static uint64_t data_start(const struct metadata_piece *piece, uint64_t element_size)
{
    if (!metadata_is_in_stream(piece))
        return piece->view->data_offset;
    uint64_t before =
        piece->encoding == PIECE_RANGE ? (uint64_t)piece->range->first * element_size : 0;
    return (piece->offset / DATA_PAGE + 1) * DATA_PAGE + before;
}

/* Where the first element of a region, or the piece's element in its place, is in the file. */
static uint64_t region_start(const struct metadata *metadata, const struct share_region *region)
{
    const struct metadata_entry *entry = &metadata->entries[region->entry];
    const struct metadata_piece *piece = piece_of(metadata, region);
    int64_t before = 0; /* elements of the piece in front of the region */
    for (int32_t i = 0; i < region->box.ndim; i++)
        before = before * piece->sizes[i] + region->box.offsets[i] - piece->offsets[i];
    uint64_t size = dcp_dtype_size(entry->dtype);
    return data_start(piece, size) + (uint64_t)before * size;
}

int64_t share_choose_cut(const struct metadata *metadata, const struct share_region *region,
                         uint64_t bytes)
{
    uint64_t size = dcp_dtype_size(metadata->entries[region->entry].dtype);
    uint64_t start = region_start(metadata, region);
    uint64_t place = (start + bytes + CUT_BLOCK / 2) / CUT_BLOCK * CUT_BLOCK;
    uint64_t cut = place > start ? (place - start) / size : 0;
    uint64_t volume = (uint64_t)box_volume(region->box);
    return (int64_t)(cut < volume ? cut : volume);
}

int64_t share_choose_end(const struct metadata *metadata, const struct share_region *region,
                         int64_t from, int64_t count, int64_t most)
{
    const struct metadata_entry *entry = &metadata->entries[region->entry];
    const struct box piece = share_piece_box(entry, region->piece);
    if (!entry->is_tensor || box_run(piece, region->box) < box_volume(region->box))
        return from + most;
    uint64_t size = dcp_dtype_size(entry->dtype), start = region_start(metadata, region);
    uint64_t place = (start + (uint64_t)(from + count) * size + END_BLOCK - 1) / END_BLOCK;
    int64_t end = (int64_t)((place * END_BLOCK - start) / size);
    return end > from && end - from <= most ? end : from + most;
}
