/* SPDX-License-Identifier: BSD-3-Clause */
/* What comes out of a merge: orders for each rank, and the metadata. Both own what they point to,
 * since plans are freed when they are merged. */
#include <string.h>

#include "base/error.h"
#include "plan/save_merge.h"

/* Copies the numbers of a box behind *numbers, which moves on. */
static struct box copy_box(struct box box, int64_t **numbers)
{
    size_t count = (size_t)box.ndim;
    struct box copy = {box.ndim, *numbers, *numbers + count};
    if (count != 0) {
        memcpy(*numbers, box.offsets, count * sizeof(int64_t));
        memcpy(*numbers + count, box.sizes, count * sizeof(int64_t));
    }
    *numbers += 2 * count;
    return copy;
}

static bool piece_is_tensor(const struct merge *merge, const struct merge_piece *piece)
{
    return merge->entries[piece->entry].item->is_tensor;
}

static dcp_status make_rank_orders(const struct merge *merge, uint32_t rank,
                                   struct write_orders *orders)
{
    const uint32_t *sequence = &merge->sequence[merge->rank_start[rank]];
    size_t count = merge->rank_start[rank + 1] - merge->rank_start[rank];
    size_t numbers_count = 0;
    for (size_t i = 0; i < count; i++)
        numbers_count += 2 * (size_t)merge->pieces[sequence[i]].box.ndim;
    orders->orders = arena_allocate_array(&orders->arena, count, sizeof *orders->orders);
    int64_t *numbers = arena_allocate_array(&orders->arena, numbers_count, sizeof *numbers);
    if (orders->orders == NULL || numbers == NULL)
        return error_no_memory(count * sizeof *orders->orders, "write orders");
    for (size_t i = 0; i < count; i++) {
        const struct merge_piece *piece = &merge->pieces[sequence[i]];
        struct write_order *order = &orders->orders[i];
        *order = (struct write_order){
            .item = piece->writer->index,
            .file = piece->file,
            .offset = piece->offset,
            .data_offset = piece->data_offset,
            .length = piece->length,
        };
        if (piece_is_tensor(merge, piece))
            order->box = copy_box(piece->box, &numbers);
    }
    orders->count = count;
    orders->file_count = merge->file_counts[rank];
    return DCP_OK;
}

dcp_status merge_make_orders(const struct merge *merge, struct write_orders *orders)
{
    for (uint32_t rank = 0; rank < merge->rank_count; rank++)
        RETURN_IF_ERROR(make_rank_orders(merge, rank, &orders[rank]));
    return DCP_OK;
}

/* Files that hold something, by rank and number. */
static dcp_status name_files(struct merge *merge, struct metadata *metadata)
{
    metadata->files = arena_allocate_array(&metadata->arena, merge->piece_count, sizeof(char *));
    if (metadata->files == NULL)
        return error_no_memory(merge->piece_count * sizeof(char *), "names of files");
    const struct merge_piece *before = NULL;
    for (size_t i = 0; i < merge->piece_count; i++) {
        struct merge_piece *piece = &merge->pieces[merge->sequence[i]];
        if (before == NULL || before->writer->rank != piece->writer->rank ||
            before->file != piece->file) {
            char name[SHARD_NAME_MAX];
            shard_name(name, (int)piece->writer->rank, piece->file, merge->options->generation);
            char *copy = arena_copy_text(&metadata->arena, name, strlen(name));
            if (copy == NULL)
                return error_no_memory(strlen(name) + 1, "names of files");
            metadata->files[metadata->file_count++] = copy;
        }
        piece->stored_file = (uint32_t)(metadata->file_count - 1);
        before = piece;
    }
    return DCP_OK;
}

static dcp_status copy_path(struct arena *arena, const struct write_item *item,
                            struct metadata_entry *entry)
{
    dcp_path_part *path = arena_allocate_array(arena, item->path_length, sizeof *path);
    entry->path = path;
    entry->path_length = item->path_length;
    bool complete = path != NULL;
    for (size_t i = 0; i < item->path_length && complete; i++) {
        path[i] = item->path[i];
        if (path[i].key != NULL)
            path[i].key = arena_copy_text(arena, item->path[i].key, strlen(item->path[i].key));
        complete = path[i].key != NULL || item->path[i].key == NULL;
    }
    return complete ? DCP_OK : error_no_memory(item->path_length * sizeof *path, "a path");
}

static dcp_status copy_entry(struct arena *arena, const struct merge_entry *merged,
                             struct metadata_entry *entry)
{
    const struct write_item *item = merged->item;
    size_t name_length = strlen(item->name);
    *entry = (struct metadata_entry){
        .name = arena_copy_text(arena, item->name, name_length),
        .is_tensor = item->is_tensor,
        .requires_grad = merged->requires_grad,
        .dtype = item->dtype,
        .ndim = item->ndim,
    };
    if (item->is_tensor)
        entry->global_shape =
            arena_copy(arena, item->global_shape, (size_t)item->ndim * sizeof(int64_t));
    if (entry->name == NULL || (item->is_tensor && entry->global_shape == NULL))
        return error_no_memory(name_length + 1, "a name");
    return copy_path(arena, item, entry);
}

/* Pieces are in the order of their entries. */
static dcp_status copy_pieces(const struct merge *merge, struct metadata *metadata)
{
    size_t numbers_count = 0;
    for (size_t i = 0; i < merge->piece_count; i++)
        numbers_count += 2 * (size_t)merge->pieces[i].box.ndim;
    struct metadata_piece *pieces =
        arena_allocate_array(&metadata->arena, merge->piece_count, sizeof *pieces);
    int64_t *numbers = arena_allocate_array(&metadata->arena, numbers_count, sizeof *numbers);
    if (pieces == NULL || numbers == NULL)
        return error_no_memory(merge->piece_count * sizeof *pieces, "pieces of a checkpoint");
    for (size_t i = 0; i < merge->piece_count; i++) {
        const struct merge_piece *piece = &merge->pieces[i];
        struct metadata_entry *entry = &metadata->entries[piece->entry];
        if (entry->piece_count++ == 0)
            entry->pieces = &pieces[i];
        pieces[i] = (struct metadata_piece){
            .file = piece->stored_file,
            .encoding = PIECE_STREAM,
            .offset = piece->offset,
            .length = piece->length,
        };
        if (!piece_is_tensor(merge, piece))
            continue;
        struct box box = copy_box(piece->box, &numbers);
        pieces[i].offsets = box.offsets;
        pieces[i].sizes = box.sizes;
    }
    return DCP_OK;
}

dcp_status merge_make_metadata(struct merge *merge, struct metadata *metadata)
{
    RETURN_IF_ERROR(name_files(merge, metadata));
    metadata->has_paths = true;
    metadata->save_id = "";
    metadata->entries =
        arena_allocate_array(&metadata->arena, merge->entry_count, sizeof *metadata->entries);
    if (metadata->entries == NULL)
        return error_no_memory(merge->entry_count * sizeof *metadata->entries, "entries");
    for (size_t i = 0; i < merge->entry_count; i++) {
        RETURN_IF_ERROR(copy_entry(&metadata->arena, &merge->entries[i], &metadata->entries[i]));
        metadata->count++;
    }
    RETURN_IF_ERROR(copy_pieces(merge, metadata));
    return metadata_index(metadata);
}
