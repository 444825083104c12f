/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes the orders of each rank; their files and offsets are also put into the metadata. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "plan/save/save_layout.h"

/* All pieces by the rank that writes them. */
struct dealing {
    const struct merge *merge;
    struct metadata_piece *places; /* of all pieces, to be noted; NULL: nobody wants them */
    uint32_t generation;
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
    const struct save_plan_options *options = &dealing->merge->options;
    shard_name(name, (int)(options->first_rank + rank), file, dealing->generation);
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
        .is_part = stream->piece.is_part || (merge->options.of_wholes && entry->is_tensor),
        .box = merge_box(merge, &stream->piece),
        .offset = stream->offset,
        .data_offset = stream->piece.data_offset,
        .length = entry->is_tensor ? stream->piece.length : entry->object_length,
        .room = stream->piece.length,
    };
}

/* Tells the metadata where a rank's pieces are. */
static dcp_status note_places(struct dealing *dealing, uint32_t rank,
                              const struct rank_layout *layout)
{
    const struct metadata *metadata = dealing->merge->metadata;
    for (size_t i = 0; i < layout->count; i++) {
        const struct layout_stream *stream = &layout->streams[layout->sequence[i]];
        struct metadata_piece *piece = &dealing->places[stream->number];
        if (i == 0 || stream->file != layout->streams[layout->sequence[i - 1]].file)
            RETURN_IF_ERROR(add_file(dealing, rank, stream->file));
        piece->file = (uint32_t)(metadata->file_count - 1);
        piece->offset = stream->offset;
    }
    return DCP_OK;
}

static dcp_status order_rank(struct dealing *dealing, uint32_t rank, const struct order_sink *sink)
{
    struct rank_layout layout;
    gather_streams(dealing, rank, &layout);
    RETURN_IF_ERROR(layout_assign(&layout, &dealing->merge->options));
    if (dealing->places != NULL)
        RETURN_IF_ERROR(note_places(dealing, rank, &layout));
    if (sink == NULL)
        return DCP_OK;
    struct write_orders orders = {.orders = dealing->orders, .file_count = layout.file_count};
    for (; orders.count < layout.count; orders.count++)
        orders.orders[orders.count] =
            order_stream(dealing->merge, &layout.streams[layout.sequence[orders.count]]);
    return sink->take(sink->context, rank, &orders);
}

static void finish(struct dealing *dealing)
{
    memory_release(dealing->orders);
    memory_release(dealing->sequence);
    memory_release(dealing->streams);
    memory_release(dealing->rank_start);
    memory_release(dealing->pieces);
}

dcp_status merge_order_rank(const struct merge *merge, uint32_t rank, const struct order_sink *sink)
{
    struct dealing dealing = {.merge = merge};
    dcp_status status = prepare(&dealing);
    if (status == DCP_OK)
        status = order_rank(&dealing, rank, sink);
    finish(&dealing);
    return status;
}

dcp_status merge_order_all(const struct merge *merge, uint32_t generation,
                           const struct order_sink *sink)
{
    struct dealing dealing = {.merge = merge, .generation = generation};
    struct metadata *metadata = merge->metadata;
    RETURN_IF_ERROR(merge_make_metadata(merge, &dealing.places));
    metadata->files = arena_allocate_array(&metadata->arena, merge->piece_count, sizeof(char *));
    if (metadata->files == NULL)
        return error_no_memory(merge->piece_count * sizeof(char *), "files");
    dcp_status status = prepare(&dealing);
    for (uint32_t rank = 0; rank < merge->rank_count && status == DCP_OK; rank++)
        status = order_rank(&dealing, rank, sink);
    finish(&dealing);
    return status;
}
