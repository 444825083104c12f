/* SPDX-License-Identifier: BSD-3-Clause */
/* Where regions may be cut, so that several ranks read parts of them, and all is checked. */
#include "plan/share/load_share_assign.h"
#include "state/record_rest.h"

/* Large tensors begin at a page, and blocks with a checksum are no larger: cuts at these places
 * cost nothing; at others a block is read twice to be checked. */
#define CUT_BLOCK ((uint64_t)1 << 20)
#define DATA_PAGE ((uint64_t)4096)

static const struct metadata_piece *piece_of(const struct metadata *metadata,
                                             const struct share_region *region)
{
    return &metadata->entries[region->entry].pieces[region->piece];
}

static bool is_whole(const struct metadata *metadata, const struct share_region *region)
{
    return box_equal(region->box,
                     share_piece_box(&metadata->entries[region->entry], region->piece));
}

/* Whether a piece's data may have a separate checksum; for a stream this is known when it is read.
 */
static bool may_have_sum(const struct metadata_piece *piece)
{
    return piece->encoding == PIECE_STREAM || piece->view->has_crc;
}

/* Compressed streams have to be read from their beginning. Data with one checksum can be read in
 * parts if all of it is, so that the sums of these can be joined; some of it only where that would
 * not be checked by who reads all of that, either, or is checked block by block. */
bool share_can_be_cut(const struct metadata *metadata, const struct share_rules *rules,
                      const struct share_region *region)
{
    const struct metadata_piece *piece = piece_of(metadata, region);
    if (rules->objects || piece->zstd || (piece->encoding != PIECE_STREAM && piece->view->deflated))
        return false;
    uint64_t size = dcp_dtype_size(metadata->entries[region->entry].dtype);
    uint64_t wanted = (uint64_t)box_volume(region->box) * size;
    uint64_t record = piece->encoding == PIECE_STREAM
                          ? (uint64_t)box_volume(
                                share_piece_box(&metadata->entries[region->entry], region->piece)) *
                                size
                          : piece->view->data_length;
    return rules->blocks || !may_have_sum(piece) || is_whole(metadata, region) ||
           !record_rest_pays(rules->verification, wanted, record);
}

bool share_run_is_summed(const struct load_share *share, const struct metadata *metadata,
                         const struct share_run *run, dcp_verification verification)
{
    const struct share_region *region = &share->regions[run->region];
    bool is_cut = run->from != 0 || run->end != box_volume(region->box);
    return is_cut && verification != DCP_VERIFY_NONE && may_have_sum(piece_of(metadata, region)) &&
           is_whole(metadata, region);
}

/* Where a piece's data begins in its file, as far as is known without reading it. */
static uint64_t data_start(const struct metadata_piece *piece)
{
    if (piece->encoding != PIECE_STREAM)
        return piece->view->data_offset;
    return (piece->offset / DATA_PAGE + 1) * DATA_PAGE;
}

int64_t share_choose_cut(const struct metadata *metadata, const struct share_region *region,
                         uint64_t bytes)
{
    const struct metadata_entry *entry = &metadata->entries[region->entry];
    const struct metadata_piece *piece = piece_of(metadata, region);
    int64_t before = 0; /* elements of the piece in front of the region */
    for (int32_t i = 0; i < region->box.ndim; i++)
        before = before * piece->sizes[i] + region->box.offsets[i] - piece->offsets[i];
    uint64_t size = dcp_dtype_size(entry->dtype);
    uint64_t start = data_start(piece) + (uint64_t)before * size;
    uint64_t place = (start + bytes + CUT_BLOCK / 2) / CUT_BLOCK * CUT_BLOCK;
    uint64_t cut = place > start ? (place - start) / size : 0;
    uint64_t volume = (uint64_t)box_volume(region->box);
    return (int64_t)(cut < volume ? cut : volume);
}
