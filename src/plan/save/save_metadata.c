/* SPDX-License-Identifier: BSD-3-Clause */
/* The metadata of a merge but for files and offsets. If it is kept when the plans are gone,
 * everything but numbers is copied. */
#include <string.h>

#include "base/error.h"
#include "plan/save/save_merge.h"

static dcp_status copy_path(struct arena *arena, const struct joint_entry *item,
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

static void borrow_entry(const struct merge_entry *merged, struct metadata_entry *entry)
{
    const struct joint_entry *item = merged->joint;
    *entry = (struct metadata_entry){
        .name = item->name,
        .path = item->path,
        .path_length = item->path_length,
        .is_tensor = item->is_tensor,
        .requires_grad = item->requires_grad,
        .dtype = item->dtype,
        .ndim = item->ndim,
        .global_shape = item->is_tensor ? item->global_shape : NULL,
    };
}

static dcp_status copy_entry(struct arena *arena, const struct merge_entry *merged,
                             struct metadata_entry *entry)
{
    const struct joint_entry *item = merged->joint;
    size_t name_length = strlen(item->name);
    borrow_entry(merged, entry);
    entry->name = arena_copy_text(arena, item->name, name_length);
    if (item->is_tensor)
        entry->global_shape =
            arena_copy(arena, item->global_shape, (size_t)item->ndim * sizeof(int64_t));
    if (entry->name == NULL || (item->is_tensor && entry->global_shape == NULL))
        return error_no_memory(name_length + 1, "a name");
    return copy_path(arena, item, entry);
}

/* Pieces are in the order of their entries; their numbers are in the metadata's arena already. */
static void list_pieces(const struct merge *merge, struct metadata_piece *pieces)
{
    for (size_t i = 0; i < merge->piece_count; i++) {
        const struct merge_piece *piece = &merge->pieces[i];
        struct metadata_entry *entry = &merge->metadata->entries[piece->entry];
        if (entry->piece_count++ == 0)
            entry->pieces = &pieces[i];
        pieces[i] = (struct metadata_piece){.encoding = PIECE_STREAM, .length = piece->length};
        if (!entry->is_tensor) {
            pieces[i].length = merge->entries[piece->entry].joint->object_length;
            continue;
        }
        pieces[i].offsets = piece->offsets;
        pieces[i].sizes = piece->sizes;
    }
}

dcp_status merge_make_metadata(const struct merge *merge, struct metadata_piece **pieces)
{
    struct metadata *metadata = merge->metadata;
    struct arena *arena = &metadata->arena;
    metadata->has_paths = true;
    metadata->entries = arena_allocate_array(arena, merge->entry_count, sizeof *metadata->entries);
    *pieces = arena_allocate_array(arena, merge->piece_count, sizeof(**pieces));
    if (metadata->entries == NULL || *pieces == NULL)
        return error_no_memory(merge->piece_count * sizeof(**pieces), "pieces of a checkpoint");
    for (size_t i = 0; i < merge->entry_count; i++) {
        if (merge->options.borrows)
            borrow_entry(&merge->entries[i], &metadata->entries[i]);
        else
            RETURN_IF_ERROR(copy_entry(arena, &merge->entries[i], &metadata->entries[i]));
        metadata->count++;
    }
    list_pieces(merge, *pieces);
    return metadata_index(metadata);
}
