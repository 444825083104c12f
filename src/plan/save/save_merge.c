/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/save/save_merge.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"

dcp_status merge_count_length(struct merge *merge, const struct merge_piece *piece)
{
    uint64_t room = INT64_MAX - merge->total_length;
    if (piece->length > room || room - piece->length < SAVE_PAGE)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "\"%s\": all ranks together hold more than 2^63 bytes",
                             merge->entries[piece->entry].joint->name);
    merge->total_length += piece->length + SAVE_PAGE;
    return DCP_OK;
}

struct box merge_box(const struct merge *merge, const struct merge_piece *piece)
{
    return (struct box){merge->entries[piece->entry].joint->ndim, piece->offsets, piece->sizes};
}

/* Chunks of one tensor are mostly of one size, and tensors of one size often follow each other. */
dcp_status merge_stream_layout(struct merge *merge, struct merge_piece *piece)
{
    const struct merge_entry *entry = &merge->entries[piece->entry];
    dcp_dtype dtype = entry->joint->dtype;
    int32_t ndim = entry->joint->ndim;
    struct box last = box_whole(merge->last_layout.ndim, merge->last_layout.sizes);
    if (merge->last_layout.dtype != dtype || !box_equal(last, box_whole(ndim, piece->sizes))) {
        merge->last_layout.dtype = DCP_DTYPE_NONE;
        dcp_status status = merge->options.layout(
            dtype, ndim, piece->sizes, &merge->last_layout.data_offset, &merge->last_layout.length);
        if (status != DCP_OK)
            return error_prefix(status, "\"%s\"", entry->joint->name);
        merge->last_layout.dtype = dtype;
        merge->last_layout.ndim = ndim;
        if (ndim != 0)
            memcpy(merge->last_layout.sizes, piece->sizes, (size_t)ndim * sizeof(int64_t));
    }
    piece->data_offset = merge->last_layout.data_offset;
    piece->length = merge->last_layout.length;
    return merge_count_length(merge, piece);
}

static dcp_status run(struct merge *merge, const struct joint_plan *joint)
{
    RETURN_IF_ERROR(merge_expand(merge, joint));
    RETURN_IF_ERROR(merge_find_pieces(merge));
    return merge_choose_writers(merge);
}

dcp_status joint_plan_merge(const struct joint_plan *joint, const struct save_plan_options *options,
                            struct metadata *metadata, struct merge **merge)
{
    struct merge *made = memory_allocate_zeroed(1, sizeof *made);
    *merge = NULL;
    if (metadata != NULL)
        metadata_init(metadata);
    if (made == NULL)
        return error_no_memory(sizeof *made, "what ranks write");
    metadata_init(&made->unwanted);
    made->rank_count = joint->rank_count;
    made->options = *options;
    made->metadata = metadata != NULL ? metadata : &made->unwanted;
    dcp_status status = run(made, joint);
    if (status == DCP_OK)
        *merge = made;
    else
        merge_free(made);
    return status;
}

void merge_free(struct merge *merge)
{
    if (merge == NULL)
        return;
    memory_release(merge->slices);
    memory_release(merge->loads);
    memory_release(merge->pieces);
    memory_release(merge->held);
    memory_release(merge->entries);
    metadata_free(&merge->unwanted);
    memory_release(merge);
}

uint64_t merge_bytes(const struct merge *merge)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < merge->piece_count; i++)
        bytes += merge->pieces[i].length;
    return bytes;
}

/* Keeps orders; their boxes stay in the metadata. */
static dcp_status keep_orders(void *context, uint32_t rank, const struct write_orders *orders)
{
    struct write_orders *kept = (struct write_orders *)context + rank;
    kept->orders = arena_copy(&kept->arena, orders->orders, orders->count * sizeof *orders->orders);
    if (kept->orders == NULL)
        return error_no_memory(orders->count * sizeof *orders->orders, "write orders");
    kept->count = orders->count;
    kept->file_count = orders->file_count;
    return DCP_OK;
}

dcp_status save_plan_merge(const struct save_plan *plans, int rank_count,
                           const struct save_plan_options *options, uint32_t generation,
                           struct write_orders *orders, struct metadata *metadata)
{
    struct joint_plan joint;
    struct merge *merge = NULL;
    struct order_sink sink = {.take = keep_orders, .context = orders};
    dcp_status status = DCP_OK;
    metadata_init(metadata);
    joint_plan_init(&joint, (uint32_t)rank_count);
    for (int rank = 0; rank < rank_count; rank++) {
        orders[rank] = (struct write_orders){0};
        arena_init(&orders[rank].arena, 0);
    }
    for (int rank = 0; rank < rank_count && status == DCP_OK; rank++)
        status = joint_plan_add(&joint, &plans[rank], (uint32_t)rank);
    if (status == DCP_OK)
        status = joint_plan_merge(&joint, options, metadata, &merge);
    if (status == DCP_OK)
        status = merge_order_all(merge, generation, &sink);
    merge_free(merge);
    joint_plan_free(&joint);
    return status;
}
