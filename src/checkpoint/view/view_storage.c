/* SPDX-License-Identifier: BSD-3-Clause */
/* The storages of a .pt file, which its tensors are views of. */
#include <inttypes.h>

#include "base/error.h"
#include "checkpoint/view/view_records.h"

void view_storage_init(struct view_storage *storage, const struct metadata_entry *entry,
                       const struct metadata_piece *piece, dcp_dtype dtype)
{
    static const int64_t zero, one = 1;
    *storage = (struct view_storage){
        .elements = (int64_t)(piece->view->storage_bytes / dcp_dtype_size(dtype)),
        .view = *piece->view,
        .piece = *piece,
        .entry = *entry};
    storage->view.dtype = dtype;
    storage->view.ndim = 1;
    storage->view.sizes = &storage->elements;
    storage->view.strides = &one;
    storage->view.storage_offset = 0;
    storage->view.swapped = storage->view.conjugate = storage->view.negative = false;
    storage->piece.offsets = &zero;
    storage->piece.sizes = &storage->elements;
    storage->piece.view = &storage->view;
    storage->entry.dtype = dtype;
    storage->entry.ndim = 1;
    storage->entry.global_shape = &storage->elements;
    storage->entry.pieces = &storage->piece;
    storage->entry.piece_count = 1;
}

static dcp_status read_elements(dcp_checkpoint *checkpoint, size_t number,
                                const struct metadata_entry *entry, int64_t first, int64_t count,
                                void *bytes, dcp_verification verification)
{
    static const int64_t one = 1;
    const struct view_chunk of = {number, 0};
    const uint64_t size = dcp_dtype_size(entry->dtype);
    struct view_storage storage;
    struct view_span span = {(uint64_t)first * size, (uint64_t)(first + count) * size, {0}};
    uint64_t moved;
    view_storage_init(&storage, entry, entry->pieces, entry->dtype);
    bool summed = view_is_joined(checkpoint, verification, of, span.end - span.from);
    const struct state_chunk target = {
        .offsets = &first, .sizes = &count, .strides = (int64_t *)&one, .data = bytes};
    const struct shard_request request = {.entry = &storage.entry,
                                          .piece = &storage.piece,
                                          .region = {1, &first, &count},
                                          .dtype = entry->dtype,
                                          .target = &target,
                                          .sum = summed ? &span.sum : NULL};
    RETURN_IF_ERROR(shard_read_tensors(checkpoint->reader, &request, 1, 1, verification, &moved));
    return span.sum.known ? view_take_span(checkpoint, of, &span) : DCP_OK;
}

dcp_status dcp_checkpoint_read_storage_sized(dcp_checkpoint *checkpoint, size_t entry,
                                             int64_t first, int64_t count, void *elements,
                                             const dcp_read_options *options, size_t options_size)
{
    dcp_read_options how;
    const struct metadata_entry *found = NULL;
    const struct metadata_piece *piece = NULL;
    RETURN_IF_ERROR(view_find_piece(checkpoint, entry, 0, &found, &piece));
    RETURN_IF_ERROR(view_check_readable(checkpoint, found));
    if (!found->is_tensor || piece->encoding != PIECE_VIEW || piece->view->swapped ||
        piece->view->conjugate || piece->view->negative)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "%s: not a plain view of a storage", found->name);
    RETURN_IF_ERROR(view_read_options(found->name, options, options_size, &how));
    int64_t there = (int64_t)(piece->view->storage_bytes / dcp_dtype_size(found->dtype));
    if (first < 0 || count < 0 || first > there || count > there - first ||
        (count > 0 && !elements))
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "%s: %" PRId64 " elements from %" PRId64
                             " on were requested, but its storage has %" PRId64,
                             found->name, count, first, there);
    if (count == 0)
        return DCP_OK;
    return read_elements(checkpoint, entry, found, first, count, elements, how.verification);
}
