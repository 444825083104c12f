/* SPDX-License-Identifier: BSD-3-Clause */
/* Unites metadata: of the ranks of a save without collectives, or of the members of a union. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/metadata/metadata_codec.h"
#include "format/metadata/piece_table.h"

/* Names of places in messages; longer ones are cut. */
#define PLACE_TEXT_MAX 256

/* Pieces that go into the whole, in order of parts. */
struct union_state {
    const struct metadata *parts;
    struct metadata *whole;
    size_t *origins; /* for each entry of the whole: the first part that has it */
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

static dcp_status add_new_entry(struct union_state *state, const struct metadata_entry *entry,
                                size_t part)
{
    struct metadata *whole = state->whole;
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
    state->origins[whole->count] = part;
    uint64_t place = whole->count++;
    bool existing;
    return name_table_add(&whole->by_name, copy->name, strlen(copy->name), &place, &existing);
}

/* "on rank 3", "in pp3". */
static const char *place_of(const struct union_state *state, size_t part, char text[PLACE_TEXT_MAX])
{
    const struct metadata *metadata = &state->parts[part];
    if (metadata->member_count > 0)
        snprintf(text, PLACE_TEXT_MAX, "in %s", metadata->members[0].name);
    else
        snprintf(text, PLACE_TEXT_MAX, "on rank %zu", part);
    return text;
}

/* Checks that a name means the same in all parts. */
static dcp_status check_agreement(const struct union_state *state, size_t place,
                                  const struct metadata_entry *entry, size_t part)
{
    const struct metadata_entry *known = &state->whole->entries[place];
    char known_text[200], text[200], known_place[PLACE_TEXT_MAX], entry_place[PLACE_TEXT_MAX];
    const char *here = place_of(state, part, entry_place);
    const char *there = place_of(state, state->origins[place], known_place);
    if (known->is_tensor != entry->is_tensor)
        return dcp_error_set(DCP_ERR_KIND, "\"%s\" is %s %s, but %s %s", entry->name,
                             entry->is_tensor ? "a tensor" : "an object", here,
                             known->is_tensor ? "a tensor" : "an object", there);
    if (known->dtype != entry->dtype)
        return dcp_error_set(DCP_ERR_DTYPE, "\"%s\" is %s %s, but %s %s", entry->name,
                             dcp_dtype_name(entry->dtype), here, dcp_dtype_name(known->dtype),
                             there);
    if (known->ndim != entry->ndim ||
        (known->ndim != 0 && memcmp(known->global_shape, entry->global_shape,
                                    (size_t)known->ndim * sizeof *known->global_shape) != 0))
        return dcp_error_set(
            DCP_ERR_SHAPE, "\"%s\" has the shape %s %s, but %s %s", entry->name,
            shape_format(entry->ndim, entry->global_shape, text, sizeof text), here,
            shape_format(known->ndim, known->global_shape, known_text, sizeof known_text), there);
    return DCP_OK;
}

static dcp_status add_entry(struct union_state *state, const struct metadata_entry *entry,
                            size_t part, uint32_t *place)
{
    struct metadata *whole = state->whole;
    uint64_t found = whole->count;
    bool known = name_table_find(&whole->by_name, entry->name, strlen(entry->name), &found);
    *place = (uint32_t)found;
    return known ? check_agreement(state, found, entry, part) : add_new_entry(state, entry, part);
}

static dcp_status add_file(struct union_state *state, const char *name, size_t part, uint32_t *file)
{
    struct metadata *whole = state->whole;
    uint64_t place;
    bool existing;
    if (!name_table_find(&state->file_indices, name, strlen(name), &place)) {
        char *copy = arena_copy_text(&whole->arena, name, strlen(name));
        if (copy == NULL)
            return error_no_memory(strlen(name), "a file's name");
        place = whole->file_count;
        if (whole->member_count > 0)
            whole->file_members[place] = (uint32_t)part;
        whole->files[whole->file_count++] = copy;
        RETURN_IF_ERROR(
            name_table_add(&state->file_indices, copy, strlen(copy), &place, &existing));
    }
    *file = (uint32_t)place;
    return DCP_OK;
}

static dcp_status copy_boxes(struct arena *arena, int32_t ndim, struct metadata_piece *piece)
{
    size_t bytes = (size_t)ndim * sizeof *piece->offsets;
    piece->offsets = arena_copy(arena, piece->offsets, bytes);
    piece->sizes = arena_copy(arena, piece->sizes, bytes);
    return piece->offsets && piece->sizes ? DCP_OK : error_no_memory(bytes, "a chunk's box");
}

/* Of a piece of safetensors: nothing of a part is needed when it is gone. */
static dcp_status copy_view(struct arena *arena, struct metadata_piece *piece)
{
    const struct tensor_view *view = piece->view;
    if (view == NULL)
        return DCP_OK;
    size_t bytes = (size_t)view->ndim * sizeof *view->sizes;
    struct tensor_view *copy = arena_copy(arena, view, sizeof *view);
    if (copy == NULL)
        return error_no_memory(sizeof *view, "a view");
    copy->sizes = arena_copy(arena, view->sizes, bytes);
    copy->strides = arena_copy(arena, view->strides, bytes);
    piece->view = copy;
    return copy->sizes && copy->strides ? DCP_OK : error_no_memory(bytes, "a view");
}

/* ndim: -1 for objects. */
static dcp_status own_piece(struct arena *arena, int32_t ndim, struct metadata_piece *piece)
{
    RETURN_IF_ERROR(copy_view(arena, piece));
    return ndim < 0 ? DCP_OK : copy_boxes(arena, ndim, piece);
}

static dcp_status add_replica(struct metadata *whole, size_t entry, uint32_t file,
                              const struct metadata_piece *piece)
{
    struct metadata_replica *replica = &whole->replicas[whole->replica_count++];
    *replica = (struct metadata_replica){entry, *piece};
    replica->piece.file = file;
    int32_t ndim = whole->entries[entry].is_tensor ? whole->entries[entry].ndim : -1;
    return own_piece(&whole->arena, ndim, &replica->piece);
}

static dcp_status add_piece(struct union_state *state, const struct metadata *part, size_t index,
                            uint32_t place, const struct metadata_piece *piece)
{
    struct metadata *whole = state->whole;
    struct metadata_entry *entry = &whole->entries[place];
    int32_t ndim = entry->is_tensor ? entry->ndim : -1;
    state->keys[state->count] = (struct piece_key){place, ndim, piece->offsets};
    size_t known = piece_table_add(&state->table, state->count);
    if (known != state->count && part->member_count == 0)
        return DCP_OK; /* a lower rank has it */
    uint32_t file = 0;
    RETURN_IF_ERROR(add_file(state, part->files[piece->file], index, &file));
    bool same =
        known != state->count && (ndim <= 0 || memcmp(piece->sizes, state->pieces[known]->sizes,
                                                      (size_t)ndim * sizeof *piece->sizes) == 0);
    if (same)
        return add_replica(whole, place, file, piece);
    state->pieces[state->count] = piece;
    state->files[state->count++] = file;
    entry->piece_count++;
    return DCP_OK;
}

static dcp_status copy_id(struct arena *arena, const char *from, const char **to)
{
    *to = arena_copy_text(arena, from, strlen(from));
    return *to ? DCP_OK : error_no_memory(strlen(from), "a save's id");
}

static dcp_status add_member(struct metadata *whole, const struct metadata_member *member,
                             size_t index)
{
    struct metadata_member *copy = &whole->members[index];
    *copy = *member;
    copy->name = arena_copy_text(&whole->arena, member->name, strlen(member->name));
    if (copy->name == NULL)
        return error_no_memory(strlen(member->name), "a member's name");
    return copy_id(&whole->arena, member->save_id, &copy->save_id);
}

static dcp_status add_extra_files(struct union_state *state, size_t index,
                                  struct extra_file *extras)
{
    struct metadata *whole = state->whole;
    const struct metadata *part = &state->parts[index];
    for (size_t i = 0; i < part->extra_file_count; i++) {
        const struct extra_file *extra = &part->extra_files[i];
        struct extra_file *copy = &extras[whole->extra_file_count];
        *copy = *extra;
        copy->member = (uint32_t)index;
        copy->name = arena_copy_text(&whole->arena, extra->name, strlen(extra->name));
        copy->file = arena_copy_text(&whole->arena, extra->file, strlen(extra->file));
        if (copy->name == NULL || copy->file == NULL)
            return error_no_memory(strlen(extra->file), "an extra file");
        whole->extra_file_count++;
    }
    return DCP_OK;
}

/* Parts of ranks may have the same name: the lowest rank's is found by it. */
static dcp_status unite_extra_files(struct union_state *state, size_t part_count)
{
    size_t count = 0;
    for (size_t p = 0; p < part_count; p++)
        count += state->parts[p].extra_file_count;
    struct extra_file *extras = arena_allocate_array(&state->whole->arena, count, sizeof *extras);
    if (extras == NULL)
        return error_no_memory(count * sizeof *extras, "extra files");
    state->whole->extra_files = extras;
    for (size_t p = 0; p < part_count; p++)
        RETURN_IF_ERROR(add_extra_files(state, p, extras));
    return DCP_OK;
}

static dcp_status add_part(struct union_state *state, size_t index)
{
    struct metadata *whole = state->whole;
    const struct metadata *part = &state->parts[index];
    if (part->has_paths)
        whole->has_paths = true;
    if (part->member_count > 0)
        RETURN_IF_ERROR(add_member(whole, part->members, index));
    else if (whole->save_id[0] == '\0' && part->save_id[0] != '\0')
        RETURN_IF_ERROR(copy_id(&whole->arena, part->save_id, &whole->save_id));
    for (size_t i = 0; i < part->count; i++) {
        const struct metadata_entry *entry = &part->entries[i];
        uint32_t place = 0;
        RETURN_IF_ERROR(add_entry(state, entry, index, &place));
        for (size_t k = 0; k < entry->piece_count; k++)
            RETURN_IF_ERROR(add_piece(state, part, index, place, &entry->pieces[k]));
    }
    return DCP_OK;
}

static dcp_status copy_piece(struct union_state *state, size_t position,
                             struct metadata_piece *piece)
{
    *piece = *state->pieces[position];
    piece->file = state->files[position];
    return own_piece(&state->whole->arena, state->keys[position].ndim, piece);
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
    return DCP_OK;
}

static dcp_status reserve(struct union_state *state, size_t entries, size_t files, size_t pieces,
                          size_t members)
{
    struct metadata *whole = state->whole;
    struct arena *arena = &whole->arena;
    whole->entries = arena_allocate_array(arena, entries, sizeof *whole->entries);
    whole->files = arena_allocate_array(arena, files, sizeof *whole->files);
    whole->members = arena_allocate_array(arena, members, sizeof *whole->members);
    whole->file_members = arena_allocate_array(arena, members ? files : 0, sizeof(uint32_t));
    whole->replicas = arena_allocate_array(arena, members ? pieces : 0, sizeof *whole->replicas);
    whole->member_count = members;
    state->origins = memory_allocate_array(entries, sizeof *state->origins);
    state->pieces = memory_allocate_array(pieces, sizeof *state->pieces);
    state->keys = memory_allocate_array(pieces, sizeof *state->keys);
    state->files = memory_allocate_array(pieces, sizeof *state->files);
    if (whole->entries && whole->files && whole->members && whole->file_members &&
        whole->replicas && state->origins && state->pieces && state->keys && state->files)
        return piece_table_init(&state->table, state->keys, pieces);
    return error_no_memory(entries * sizeof *whole->entries + pieces * sizeof *state->keys,
                           "the union of metadata");
}

static dcp_status unite(struct union_state *state, size_t count)
{
    const struct metadata *parts = state->parts;
    size_t entries = 0, files = 0, pieces = 0, members = 0;
    for (size_t p = 0; p < count; p++) {
        entries += parts[p].count;
        files += parts[p].file_count;
        members += parts[p].member_count;
        for (size_t i = 0; i < parts[p].count; i++)
            pieces += parts[p].entries[i].piece_count;
    }
    RETURN_IF_ERROR(reserve(state, entries, files, pieces, members));
    for (size_t p = 0; p < count; p++)
        RETURN_IF_ERROR(add_part(state, p));
    RETURN_IF_ERROR(unite_extra_files(state, count));
    return distribute(state);
}

dcp_status metadata_unite_unchecked(const struct metadata *parts, size_t count,
                                    struct metadata *whole)
{
    metadata_init(whole);
    struct union_state state = {.parts = parts, .whole = whole};
    name_table_init(&state.file_indices);
    dcp_status status = unite(&state, count);
    name_table_free(&state.file_indices);
    piece_table_free(&state.table);
    memory_release(state.files);
    memory_release(state.keys);
    memory_release(state.pieces);
    memory_release(state.origins);
    if (status != DCP_OK)
        metadata_free(whole);
    return status;
}

dcp_status metadata_unite(const struct metadata *parts, size_t count, struct metadata *whole)
{
    RETURN_IF_ERROR(metadata_unite_unchecked(parts, count, whole));
    dcp_status status = metadata_settle_members(whole);
    if (status == DCP_OK)
        status = metadata_check_chunks(whole);
    if (status != DCP_OK)
        metadata_free(whole);
    return status;
}
