/* SPDX-License-Identifier: BSD-3-Clause */
/* The orders of each rank, whose files and offsets the metadata gets as well. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "plan/save_layout.h"

/* All pieces by the rank that writes them. */
struct dealing {
    struct merge *merge;
    uint32_t *pieces;              /* numbers */
    size_t *rank_start;            /* where a rank's begin there; rank_count + 1 values */
    size_t most;                   /* pieces of one rank */
    struct layout_stream *streams; /* scratch: most */
    uint32_t *sequence;            /* scratch: most */
    struct metadata *metadata;
    size_t file_capacity; /* of metadata->files */
};

static void sort_by_rank(struct dealing *dealing)
{
    const struct merge *merge = dealing->merge;
    size_t *start = dealing->rank_start;
    for (size_t i = 0; i < merge->piece_count; i++)
        start[merge->pieces[i].holders->rank]++;
    size_t end = 0;
    for (size_t rank = 0; rank <= merge->rank_count; rank++) {
        dealing->most = start[rank] > dealing->most ? start[rank] : dealing->most;
        end += start[rank];
        start[rank] = end;
    }
    for (size_t i = merge->piece_count; i-- > 0;)
        dealing->pieces[--start[merge->pieces[i].holders->rank]] = (uint32_t)i;
}

static dcp_status prepare(struct dealing *dealing)
{
    const struct merge *merge = dealing->merge;
    size_t bytes = merge->piece_count * sizeof *dealing->pieces;
    dealing->pieces = memory_allocate_array(merge->piece_count, sizeof *dealing->pieces);
    dealing->rank_start =
        memory_allocate_zeroed((size_t)merge->rank_count + 1, sizeof *dealing->rank_start);
    if (dealing->pieces == NULL || dealing->rank_start == NULL)
        return error_no_memory(bytes, "pieces by rank");
    sort_by_rank(dealing);
    dealing->streams = memory_allocate_array(dealing->most, sizeof *dealing->streams);
    dealing->sequence = memory_allocate_array(dealing->most, sizeof *dealing->sequence);
    if (dealing->streams == NULL || dealing->sequence == NULL)
        return error_no_memory(dealing->most * sizeof *dealing->streams, "streams of a rank");
    return DCP_OK;
}

static void gather_streams(const struct dealing *dealing, uint32_t rank, struct rank_layout *layout)
{
    const struct merge *merge = dealing->merge;
    const uint32_t *numbers = &dealing->pieces[dealing->rank_start[rank]];
    layout->streams = dealing->streams;
    layout->sequence = dealing->sequence;
    layout->count = dealing->rank_start[rank + 1] - dealing->rank_start[rank];
    for (size_t i = 0; i < layout->count; i++) {
        const struct merge_piece *piece = &merge->pieces[numbers[i]];
        layout->streams[i] = (struct layout_stream){
            .piece = *piece,
            .number = numbers[i],
            .is_tensor = merge->entries[piece->entry].item->is_tensor,
        };
    }
}

static dcp_status add_file(struct dealing *dealing, uint32_t rank, uint32_t file)
{
    struct metadata *metadata = dealing->metadata;
    char name[SHARD_NAME_MAX];
    shard_name(name, (int)rank, file, dealing->merge->options->generation);
    char *copy = arena_copy_text(&metadata->arena, name, strlen(name));
    if (copy == NULL)
        return error_no_memory(sizeof name, "names of files");
    metadata->files[metadata->file_count++] = copy;
    return DCP_OK;
}

/* Boxes are those of the plan, but slices, whose numbers die with the merge. */
static dcp_status copy_box(const struct merge *merge, const struct merge_piece *piece,
                           struct arena *arena, struct box *box)
{
    *box = merge_box(merge, piece);
    if (!piece->is_slice)
        return DCP_OK;
    size_t bytes = (size_t)box->ndim * sizeof(int64_t);
    int64_t *numbers = arena_allocate(arena, 2 * bytes);
    if (numbers == NULL)
        return error_no_memory(2 * bytes, "the box of a slice");
    /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): slices have dimensions */
    memcpy(numbers, box->offsets, bytes);
    memcpy(numbers + box->ndim, box->sizes, bytes);
    *box = (struct box){box->ndim, numbers, numbers + box->ndim};
    return DCP_OK;
}

static dcp_status order_rank(struct dealing *dealing, uint32_t rank, struct write_orders *orders,
                             struct metadata_piece *pieces)
{
    struct rank_layout layout;
    gather_streams(dealing, rank, &layout);
    RETURN_IF_ERROR(layout_assign(&layout, dealing->merge->options));
    orders->file_count = layout.file_count;
    orders->orders = arena_allocate_array(&orders->arena, layout.count, sizeof *orders->orders);
    if (orders->orders == NULL)
        return error_no_memory(layout.count * sizeof *orders->orders, "write orders");
    for (size_t i = 0; i < layout.count; i++) {
        const struct layout_stream *stream = &layout.streams[layout.sequence[i]];
        struct write_order *order = &orders->orders[i];
        *order = (struct write_order){
            .item = stream->piece.holders->index,
            .file = stream->file,
            .offset = stream->offset,
            .data_offset = stream->piece.data_offset,
            .length = stream->piece.length,
        };
        RETURN_IF_ERROR(copy_box(dealing->merge, &stream->piece, &orders->arena, &order->box));
        if (i == 0 || order->file != order[-1].file)
            RETURN_IF_ERROR(add_file(dealing, rank, order->file));
        pieces[stream->number].file = (uint32_t)(dealing->metadata->file_count - 1);
        pieces[stream->number].offset = stream->offset;
        orders->count++;
    }
    return DCP_OK;
}

dcp_status merge_make_orders(struct merge *merge, struct write_orders *orders,
                             struct metadata *metadata, struct metadata_piece *pieces)
{
    struct dealing dealing = {.merge = merge, .metadata = metadata};
    metadata->files = arena_allocate_array(&metadata->arena, merge->piece_count, sizeof(char *));
    dcp_status status = metadata->files != NULL
                            ? prepare(&dealing)
                            : error_no_memory(merge->piece_count * sizeof(char *), "files");
    for (uint32_t rank = 0; rank < merge->rank_count && status == DCP_OK; rank++)
        status = order_rank(&dealing, rank, &orders[rank], pieces);
    memory_release(dealing.sequence);
    memory_release(dealing.streams);
    memory_release(dealing.rank_start);
    memory_release(dealing.pieces);
    return status;
}
