/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/shard/shard_contents.h"

#include <string.h>

#include "base/error.h"

/* Gives each name an entry, in order of appearance, and counts its pieces. entry_of[i]: of order i.
 */
static dcp_status number_entries(struct metadata *contents, const struct write_order *orders,
                                 size_t count, const struct shard_source *sources, size_t *entry_of)
{
    RETURN_IF_ERROR(name_table_reserve(&contents->by_name, count));
    for (size_t i = 0; i < count; i++) {
        const struct write_item *item = sources[orders[i].item].item;
        uint64_t index = contents->count;
        bool existing;
        RETURN_IF_ERROR(
            name_table_add(&contents->by_name, item->name, strlen(item->name), &index, &existing));
        entry_of[i] = (size_t)index;
        struct metadata_entry *entry = &contents->entries[index];
        if (!existing) {
            contents->count++;
            *entry = (struct metadata_entry){
                .name = item->name,
                .path = item->path,
                .path_length = item->path_length,
                .is_tensor = item->is_tensor,
                .requires_grad = item->requires_grad,
                .dtype = item->dtype,
                .ndim = item->ndim,
                .global_shape = item->global_shape,
            };
        }
        entry->piece_count++;
    }
    return DCP_OK;
}

/* Deals one array of pieces out to the entries. */
static void place_pieces(struct metadata *contents, struct metadata_piece *pieces,
                         const struct write_order *orders, const struct write_result *results,
                         size_t count, const size_t *entry_of)
{
    for (size_t i = 0; i < contents->count; i++) {
        contents->entries[i].pieces = pieces;
        pieces += contents->entries[i].piece_count;
        contents->entries[i].piece_count = 0;
    }
    for (size_t i = 0; i < count; i++) {
        struct metadata_entry *entry = &contents->entries[entry_of[i]];
        entry->pieces[entry->piece_count++] = (struct metadata_piece){
            .offsets = entry->is_tensor ? orders[i].box.offsets : NULL,
            .sizes = entry->is_tensor ? orders[i].box.sizes : NULL,
            .encoding = PIECE_STREAM,
            .zstd = results && results[i].zstd,
            .offset = results ? results[i].offset : orders[i].offset,
            .length = results ? results[i].length : orders[i].length,
        };
    }
}

dcp_status shard_contents_make(const char *file_name, const struct write_order *orders,
                               const struct write_result *results, size_t count,
                               const struct shard_source *sources, struct metadata *contents)
{
    metadata_init(contents);
    contents->has_paths = true;
    struct arena *arena = &contents->arena;
    contents->files = arena_allocate_array(arena, 1, sizeof *contents->files);
    contents->entries = arena_allocate_array(arena, count, sizeof *contents->entries);
    size_t *entry_of = arena_allocate_array(arena, count, sizeof *entry_of);
    struct metadata_piece *pieces = arena_allocate_array(arena, count, sizeof *pieces);
    dcp_status status = DCP_OK;
    if (!contents->files || !contents->entries || !entry_of || !pieces)
        status = error_no_memory(count * sizeof *contents->entries, "the contents of a footer");
    if (status == DCP_OK) {
        contents->files[0] = file_name;
        contents->file_count = 1;
        status = number_entries(contents, orders, count, sources, entry_of);
    }
    if (status == DCP_OK)
        place_pieces(contents, pieces, orders, results, count, entry_of);
    else
        metadata_free(contents);
    return status;
}
