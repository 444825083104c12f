/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/save_merge.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "plan/wire.h"

dcp_status merge_count_length(struct merge *merge, const struct merge_entry *entry, uint64_t length)
{
    uint64_t room = INT64_MAX - merge->total_length;
    if (length > room || room - length < SAVE_PAGE)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "\"%s\": all ranks together hold more than 2^63 bytes",
                             entry->item->name);
    merge->total_length += length + SAVE_PAGE;
    return DCP_OK;
}

/* Chunks of one tensor are mostly of one size, and tensors of one size often follow each other. */
dcp_status merge_stream_layout(struct merge *merge, const struct merge_entry *entry, struct box box,
                               uint64_t *data_offset, uint64_t *length)
{
    dcp_dtype dtype = entry->item->dtype;
    struct box last = box_whole(merge->last_layout.ndim, merge->last_layout.sizes);
    if (merge->last_layout.dtype != dtype || !box_equal(last, box_whole(box.ndim, box.sizes))) {
        merge->last_layout.dtype = DCP_DTYPE_NONE;
        dcp_status status =
            merge->options->layout(dtype, box.ndim, box.sizes, &merge->last_layout.data_offset,
                                   &merge->last_layout.length);
        if (status != DCP_OK)
            return error_prefix(status, "\"%s\"", entry->item->name);
        merge->last_layout.dtype = dtype;
        merge->last_layout.ndim = box.ndim;
        if (box.ndim != 0)
            memcpy(merge->last_layout.sizes, box.sizes, (size_t)box.ndim * sizeof(int64_t));
    }
    *data_offset = merge->last_layout.data_offset;
    *length = merge->last_layout.length;
    return merge_count_length(merge, entry, *length);
}

static dcp_status run(struct merge *merge, struct write_orders *orders, struct metadata *metadata)
{
    RETURN_IF_ERROR(merge_group(merge));
    RETURN_IF_ERROR(merge_find_chunks(merge));
    RETURN_IF_ERROR(merge_choose_writers(merge));
    RETURN_IF_ERROR(merge_make_pieces(merge));
    RETURN_IF_ERROR(merge_assign_files(merge));
    RETURN_IF_ERROR(merge_make_orders(merge, orders));
    return merge_make_metadata(merge, metadata);
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
    memory_release(merge.file_counts);
    memory_release(merge.rank_start);
    memory_release(merge.sequence);
    memory_release(merge.pieces);
    memory_release(merge.slices);
    memory_release(merge.loads);
    memory_release(merge.chunks);
    memory_release(merge.held);
    memory_release(merge.entries);
    name_table_free(&merge.names);
    arena_free(&merge.arena);
    return status;
}
