/* SPDX-License-Identifier: BSD-3-Clause */
/* One metadata of many: what each rank of a save without collectives wrote for itself. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/metadata_codec.h"
#include "format/piece_table.h"

/* Pieces that go into the whole, in order of ranks. */
struct union_state {
    struct metadata *whole;
    const struct metadata_piece **pieces;
    struct piece_key *keys;
    uint32_t *files; /* of the pieces, in the whole */
    size_t count;
    struct piece_table table;
    struct name_table file_indices;
};

static dcp_status copy_path(struct arena *arena, const struct metadata_entry *from,
                            struct metadata_entry *to)
{
    dcp_path_part *path = arena_allocate_array(arena, from->path_length, sizeof *path);
    if (path == NULL)
        return error_no_memory(from->path_length * sizeof *path, "a path");
    for (size_t i = 0; i < from->path_length; i++) {
        path[i] = from->path[i];
        if (path[i].key == NULL)
            continue;
        path[i].key = arena_copy_text(arena, path[i].key, strlen(path[i].key));
        if (path[i].key == NULL)
            return error_no_memory(strlen(from->path[i].key), "a path");
    }
    to->path = path;
    return DCP_OK;
}

static dcp_status add_new_entry(struct metadata *whole, const struct metadata_entry *entry)
{
    struct metadata_entry *copy = &whole->entries[whole->count];
    size_t shape_bytes = (size_t)entry->ndim * sizeof *entry->global_shape;
    *copy = *entry;
    copy->pieces = NULL;
    copy->piece_count = 0;
    copy->name = arena_copy_text(&whole->arena, entry->name, strlen(entry->name));
    copy->global_shape = arena_copy(&whole->arena, entry->global_shape, shape_bytes);
    if (copy->name == NULL || copy->global_shape == NULL)
        return error_no_memory(shape_bytes, "an entry");
    RETURN_IF_ERROR(copy_path(&whole->arena, entry, copy));
    uint64_t place = whole->count++;
    bool existing;
    return name_table_add(&whole->by_name, copy->name, strlen(copy->name), &place, &existing);
}

/* The same name must be the same thing on all ranks. */
static dcp_status check_agreement(const struct metadata_entry *known,
                                  const struct metadata_entry *entry, size_t rank)
{
    char known_text[200];
    char text[200];
    if (known->is_tensor != entry->is_tensor)
        return dcp_error_set(DCP_ERR_KIND, "\"%s\" is %s on rank %zu, but not on lower ranks",
                             entry->name, entry->is_tensor ? "a tensor" : "an object", rank);
    if (known->dtype != entry->dtype)
        return dcp_error_set(DCP_ERR_DTYPE, "\"%s\" is %s on rank %zu, but %s on lower ranks",
                             entry->name, dcp_dtype_name(entry->dtype), rank,
                             dcp_dtype_name(known->dtype));
    if (known->ndim != entry->ndim ||
        (known->ndim != 0 && memcmp(known->global_shape, entry->global_shape,
                                    (size_t)known->ndim * sizeof *known->global_shape) != 0))
        return dcp_error_set(
            DCP_ERR_SHAPE, "\"%s\" has the shape %s on rank %zu, but %s on lower ranks",
            entry->name, shape_format(entry->ndim, entry->global_shape, text, sizeof text), rank,
            shape_format(known->ndim, known->global_shape, known_text, sizeof known_text));
    return DCP_OK;
}

static dcp_status add_entry(struct metadata *whole, const struct metadata_entry *entry, size_t rank,
                            uint32_t *place)
{
    uint64_t found = whole->count;
    bool known = name_table_find(&whole->by_name, entry->name, strlen(entry->name), &found);
    *place = (uint32_t)found;
    return known ? check_agreement(&whole->entries[found], entry, rank)
                 : add_new_entry(whole, entry);
}

static dcp_status add_file(struct union_state *state, const char *name, uint32_t *file)
{
    struct metadata *whole = state->whole;
    uint64_t place;
    bool existing;
    if (!name_table_find(&state->file_indices, name, strlen(name), &place)) {
        char *copy = arena_copy_text(&whole->arena, name, strlen(name));
        if (copy == NULL)
            return error_no_memory(strlen(name), "a file's name");
        place = whole->file_count;
        whole->files[whole->file_count++] = copy;
        RETURN_IF_ERROR(
            name_table_add(&state->file_indices, copy, strlen(copy), &place, &existing));
    }
    *file = (uint32_t)place;
    return DCP_OK;
}

static dcp_status add_part(struct union_state *state, const struct metadata *part, size_t rank)
{
    struct metadata *whole = state->whole;
    if (part->has_paths)
        whole->has_paths = true;
    if (whole->save_id[0] == '\0' && part->save_id[0] != '\0') {
        whole->save_id = arena_copy_text(&whole->arena, part->save_id, strlen(part->save_id));
        if (whole->save_id == NULL)
            return error_no_memory(strlen(part->save_id), "a save's id");
    }
    for (size_t i = 0; i < part->count; i++) {
        const struct metadata_entry *entry = &part->entries[i];
        uint32_t place = 0;
        RETURN_IF_ERROR(add_entry(whole, entry, rank, &place));
        for (size_t k = 0; k < entry->piece_count; k++) {
            state->keys[state->count] = (struct piece_key){
                place, entry->is_tensor ? entry->ndim : -1, entry->pieces[k].offsets};
            if (piece_table_add(&state->table, state->count) != state->count)
                continue; /* a lower rank has it */
            state->pieces[state->count] = &entry->pieces[k];
            RETURN_IF_ERROR(
                add_file(state, part->files[entry->pieces[k].file], &state->files[state->count]));
            whole->entries[place].piece_count++;
            state->count++;
        }
    }
    return DCP_OK;
}

static dcp_status copy_piece(struct union_state *state, size_t position,
                             struct metadata_piece *piece)
{
    *piece = *state->pieces[position];
    piece->file = state->files[position];
    if (state->keys[position].ndim < 0)
        return DCP_OK;
    size_t bytes = (size_t)state->keys[position].ndim * sizeof *piece->offsets;
    piece->offsets = arena_copy(&state->whole->arena, piece->offsets, bytes);
    piece->sizes = arena_copy(&state->whole->arena, piece->sizes, bytes);
    if (piece->offsets == NULL || piece->sizes == NULL)
        return error_no_memory(bytes, "a chunk's box");
    return DCP_OK;
}

/* Gives each entry its part of one array of pieces, and fills it. */
static dcp_status distribute(struct union_state *state)
{
    struct metadata *whole = state->whole;
    struct metadata_piece *pieces =
        arena_allocate_array(&whole->arena, state->count, sizeof *pieces);
    if (pieces == NULL)
        return error_no_memory(state->count * sizeof *pieces, "the pieces of a checkpoint");
    for (size_t i = 0; i < whole->count; i++) {
        whole->entries[i].pieces = pieces;
        pieces += whole->entries[i].piece_count;
        whole->entries[i].piece_count = 0;
    }
    for (size_t i = 0; i < state->count; i++) {
        struct metadata_entry *entry = &whole->entries[state->keys[i].entry];
        RETURN_IF_ERROR(copy_piece(state, i, &entry->pieces[entry->piece_count]));
        entry->piece_count++;
    }
    return metadata_check_chunks(whole);
}

static dcp_status unite(struct union_state *state, const struct metadata *parts, size_t count)
{
    size_t entries = 0, files = 0, pieces = 0;
    for (size_t r = 0; r < count; r++) {
        entries += parts[r].count;
        files += parts[r].file_count;
        for (size_t i = 0; i < parts[r].count; i++)
            pieces += parts[r].entries[i].piece_count;
    }
    struct metadata *whole = state->whole;
    whole->entries = arena_allocate_array(&whole->arena, entries, sizeof *whole->entries);
    whole->files = arena_allocate_array(&whole->arena, files, sizeof *whole->files);
    state->pieces = memory_allocate_array(pieces, sizeof *state->pieces);
    state->keys = memory_allocate_array(pieces, sizeof *state->keys);
    state->files = memory_allocate_array(pieces, sizeof *state->files);
    if (whole->entries == NULL || whole->files == NULL || state->pieces == NULL ||
        state->keys == NULL || state->files == NULL)
        return error_no_memory(entries * sizeof *whole->entries + pieces * sizeof *state->keys,
                               "the union of metadata");
    RETURN_IF_ERROR(piece_table_init(&state->table, state->keys, pieces));
    for (size_t r = 0; r < count; r++)
        RETURN_IF_ERROR(add_part(state, &parts[r], r));
    return distribute(state);
}

dcp_status metadata_unite(const struct metadata *parts, size_t count, struct metadata *whole)
{
    metadata_init(whole);
    struct union_state state = {.whole = whole};
    name_table_init(&state.file_indices);
    dcp_status status = unite(&state, parts, count);
    name_table_free(&state.file_indices);
    piece_table_free(&state.table);
    memory_release(state.files);
    memory_release(state.keys);
    memory_release(state.pieces);
    if (status != DCP_OK)
        metadata_free(whole);
    return status;
}
