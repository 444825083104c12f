/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/save_merge.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"

dcp_status merge_count_length(struct merge *merge, const struct merge_piece *piece)
{
    uint64_t room = INT64_MAX - merge->total_length;
    if (piece->length > room || room - piece->length < SAVE_PAGE)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "\"%s\": all ranks together hold more than 2^63 bytes",
                             merge->entries[piece->entry].item->name);
    merge->total_length += piece->length + SAVE_PAGE;
    return DCP_OK;
}

struct box merge_box(const struct merge *merge, const struct merge_piece *piece)
{
    return (struct box){merge->entries[piece->entry].item->ndim, piece->offsets, piece->sizes};
}

/* Chunks of one tensor are mostly of one size, and tensors of one size often follow each other. */
dcp_status merge_stream_layout(struct merge *merge, struct merge_piece *piece)
{
    const struct merge_entry *entry = &merge->entries[piece->entry];
    dcp_dtype dtype = entry->item->dtype;
    int32_t ndim = entry->item->ndim;
    struct box last = box_whole(merge->last_layout.ndim, merge->last_layout.sizes);
    if (merge->last_layout.dtype != dtype || !box_equal(last, box_whole(ndim, piece->sizes))) {
        merge->last_layout.dtype = DCP_DTYPE_NONE;
        dcp_status status = merge->options->layout(
            dtype, ndim, piece->sizes, &merge->last_layout.data_offset, &merge->last_layout.length);
        if (status != DCP_OK)
            return error_prefix(status, "\"%s\"", entry->item->name);
        merge->last_layout.dtype = dtype;
        merge->last_layout.ndim = ndim;
        if (ndim != 0)
            memcpy(merge->last_layout.sizes, piece->sizes, (size_t)ndim * sizeof(int64_t));
    }
    piece->data_offset = merge->last_layout.data_offset;
    piece->length = merge->last_layout.length;
    return merge_count_length(merge, piece);
}

static dcp_status run(struct merge *merge, struct write_orders *orders, struct metadata *metadata)
{
    RETURN_IF_ERROR(merge_group(merge));
    RETURN_IF_ERROR(merge_find_pieces(merge));
    RETURN_IF_ERROR(merge_choose_writers(merge));
    struct metadata_piece *pieces;
    RETURN_IF_ERROR(merge_make_metadata(merge, metadata, &pieces));
    return merge_make_orders(merge, orders, metadata, pieces);
}

dcp_status save_plan_merge(const struct save_plan *plans, int rank_count,
                           const struct save_plan_options *options, struct write_orders *orders,
                           struct metadata *metadata)
{
    struct merge merge = {.plans = plans, .rank_count = (uint32_t)rank_count, .options = options};
    arena_init(&merge.arena, 0);
    name_table_init(&merge.names);
    metadata_init(metadata);
    for (int rank = 0; rank < rank_count; rank++) {
        orders[rank] = (struct write_orders){0};
        arena_init(&orders[rank].arena, 0);
    }
    dcp_status status = run(&merge, orders, metadata);
    memory_release(merge.slices);
    memory_release(merge.loads);
    memory_release(merge.pieces);
    memory_release(merge.held);
    memory_release(merge.entries);
    name_table_free(&merge.names);
    arena_free(&merge.arena);
    return status;
}
