/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes the orders of each rank; their files and offsets are also put into the metadata. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "plan/save/save_layout.h"

/* All pieces by the rank that writes them. */
struct dealing {
    struct merge *merge;
    uint32_t *pieces;              /* numbers */
    size_t *rank_start;            /* where a rank's begin there; rank_count + 1 values */
    size_t most;                   /* pieces of one rank */
    struct layout_stream *streams; /* scratch: most */
    uint32_t *sequence;            /* scratch: most */
    struct write_order *orders;    /* scratch: most */
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
    dealing->orders = memory_allocate_array(dealing->most, sizeof *dealing->orders);
    if (dealing->streams == NULL || dealing->sequence == NULL || dealing->orders == NULL)
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
            .is_tensor = merge->entries[piece->entry].joint->is_tensor,
        };
    }
}

static dcp_status add_file(struct dealing *dealing, uint32_t rank, uint32_t file)
{
    struct metadata *metadata = dealing->merge->metadata;
    char name[SHARD_NAME_MAX];
    const struct save_plan_options *options = dealing->merge->options;
    shard_name(name, (int)(options->first_rank + rank), file, options->generation);
    char *copy = arena_copy_text(&metadata->arena, name, strlen(name));
    if (copy == NULL)
        return error_no_memory(sizeof name, "names of files");
    metadata->files[metadata->file_count++] = copy;
    return DCP_OK;
}

static struct write_order order_stream(const struct merge *merge,
                                       const struct layout_stream *stream)
{
    const struct joint_entry *entry = merge->entries[stream->piece.entry].joint;
    return (struct write_order){
        .item = stream->piece.holders->index,
        .file = stream->file,
        .is_part = stream->piece.is_part || (merge->options->of_wholes && entry->is_tensor),
        .box = merge_box(merge, &stream->piece),
        .offset = stream->offset,
        .data_offset = stream->piece.data_offset,
        .length = entry->is_tensor ? stream->piece.length : entry->object_length,
        .room = stream->piece.length,
    };
}

/* Tells the metadata where a rank's pieces are. */
static dcp_status note_places(struct dealing *dealing, uint32_t rank,
                              const struct rank_layout *layout, struct metadata_piece *pieces)
{
    const struct metadata *metadata = dealing->merge->metadata;
    for (size_t i = 0; i < layout->count; i++) {
        const struct layout_stream *stream = &layout->streams[layout->sequence[i]];
        if (i == 0 || stream->file != layout->streams[layout->sequence[i - 1]].file)
            RETURN_IF_ERROR(add_file(dealing, rank, stream->file));
        pieces[stream->number].file = (uint32_t)(metadata->file_count - 1);
        pieces[stream->number].offset = stream->offset;
    }
    return DCP_OK;
}

static dcp_status order_rank(struct dealing *dealing, uint32_t rank, const struct order_sink *sink,
                             struct metadata_piece *pieces)
{
    struct rank_layout layout;
    gather_streams(dealing, rank, &layout);
    RETURN_IF_ERROR(layout_assign(&layout, dealing->merge->options));
    struct write_orders orders = {.orders = dealing->orders, .file_count = layout.file_count};
    for (; orders.count < layout.count; orders.count++)
        orders.orders[orders.count] =
            order_stream(dealing->merge, &layout.streams[layout.sequence[orders.count]]);
    if (pieces != NULL)
        RETURN_IF_ERROR(note_places(dealing, rank, &layout, pieces));
    return sink->take(sink->context, rank, &orders);
}

/* Without metadata only one rank's orders are wanted. */
static dcp_status order_ranks(struct dealing *dealing, const struct order_sink *sink,
                              struct metadata_piece *pieces)
{
    const struct merge *merge = dealing->merge;
    if (pieces == NULL)
        return order_rank(dealing, sink->only_rank, sink, pieces);
    merge->metadata->files =
        arena_allocate_array(&merge->metadata->arena, merge->piece_count, sizeof(char *));
    if (merge->metadata->files == NULL)
        return error_no_memory(merge->piece_count * sizeof(char *), "files");
    for (uint32_t rank = 0; rank < merge->rank_count; rank++)
        RETURN_IF_ERROR(order_rank(dealing, rank, sink, pieces));
    return DCP_OK;
}

dcp_status merge_make_orders(struct merge *merge, const struct order_sink *sink,
                             struct metadata_piece *pieces)
{
    struct dealing dealing = {.merge = merge};
    dcp_status status = prepare(&dealing);
    if (status == DCP_OK)
        status = order_ranks(&dealing, sink, pieces);
    memory_release(dealing.orders);
    memory_release(dealing.sequence);
    memory_release(dealing.streams);
    memory_release(dealing.rank_start);
    memory_release(dealing.pieces);
    return status;
}
