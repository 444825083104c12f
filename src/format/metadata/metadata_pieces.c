/* SPDX-License-Identifier: BSD-3-Clause */
/* storage_data: MetadataIndex -> _StorageInfo, joined with the chunks of the entries by name and
 * offset. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/metadata/metadata_decoding.h"
#include "format/metadata/piece_table.h"
#include "format/metadata/relative_path.h"

/* The join, with what was found last: neighbours mostly agree. */
struct join {
    struct metadata_decoding *decoding;
    struct metadata_piece *pieces; /* of all entries, in their order; length 0: nothing found yet */
    size_t count;
    struct name_table file_indices;
    const struct digested_storage *last_storage;
    uint32_t last_file;
    const struct digested_index *last_index;
    uint32_t last_entry;
    uint32_t *expected;     /* of each entry: the piece after the one found last */
    struct piece_key *keys; /* of the pieces; made when a look-up first misses */
    struct piece_table table;
};

/* ---- pieces from chunks ---- */

static dcp_status add_chunk(struct join *join, const struct metadata_entry *entry,
                            const struct digested_tensor *tensor, uint32_t index)
{
    struct digested_chunk chunk;
    RETURN_IF_ERROR(metadata_tensor_chunk(&join->decoding->digester, tensor, index, &chunk));
    if (chunk.ndim != entry->ndim)
        return dcp_error_set(DCP_ERR_FORMAT, "%" PRId32 " dimensions, but the tensor has %" PRId32,
                             chunk.ndim, entry->ndim);
    join->pieces[join->count++] = (struct metadata_piece){
        .encoding = PIECE_STREAM, .offsets = chunk.offsets, .sizes = chunk.sizes};
    return DCP_OK;
}

static dcp_status add_entry(struct join *join, struct metadata_entry *entry,
                            const struct digested_tensor *tensor, size_t capacity)
{
    entry->pieces = &join->pieces[join->count];
    entry->piece_count = entry->is_tensor ? tensor->chunk_count : 1;
    if (entry->piece_count > capacity - join->count)
        return dcp_error_set(DCP_ERR_FORMAT, "chunks: %zu, but storage_data has only %zu more",
                             entry->piece_count, capacity - join->count);
    if (!entry->is_tensor)
        join->pieces[join->count++] = (struct metadata_piece){.encoding = PIECE_STREAM};
    for (uint32_t i = 0; entry->is_tensor && i < entry->piece_count; i++) {
        dcp_status status = add_chunk(join, entry, tensor, i);
        if (status != DCP_OK)
            return error_prefix(status, "chunk %" PRIu32, i);
    }
    return DCP_OK;
}

/* There may not be more pieces than storage_data has: chunk lists can be shared by many entries. */
static dcp_status add_entries(struct join *join, size_t capacity)
{
    struct metadata *metadata = join->decoding->metadata;
    join->pieces = arena_allocate_array(&metadata->arena, capacity, sizeof *join->pieces);
    if (join->pieces == NULL)
        return error_no_memory(capacity * sizeof *join->pieces, "the pieces of a checkpoint");
    for (size_t i = 0; i < metadata->count; i++) {
        struct metadata_entry *entry = &metadata->entries[i];
        dcp_status status = add_entry(join, entry, join->decoding->tensors[i], capacity);
        if (status != DCP_OK)
            return metadata_prefix_name(status, entry->name, strlen(entry->name));
    }
    return DCP_OK;
}

/* ---- finding the piece of an index ---- */

static dcp_status find_entry(struct join *join, const struct digested_index *index, uint32_t *entry)
{
    const struct digested_index *last = join->last_index;
    if (last == NULL || last->name != index->name || last->name_length != index->name_length) {
        uint64_t place;
        if (!name_table_find(&join->decoding->metadata->by_name, index->name, index->name_length,
                             &place))
            return dcp_error_set(DCP_ERR_FORMAT,
                                 "storage_data has this name, but state_dict_metadata does not");
        join->last_index = index;
        join->last_entry = (uint32_t)place;
    }
    *entry = join->last_entry;
    return DCP_OK;
}

static dcp_status build_table(struct join *join)
{
    const struct metadata *metadata = join->decoding->metadata;
    struct piece_key *key = memory_allocate_array(join->count, sizeof *key);
    if (key == NULL)
        return error_no_memory(join->count * sizeof *key, "a table of pieces");
    join->keys = key;
    for (uint32_t i = 0; i < metadata->count; i++) {
        const struct metadata_entry *entry = &metadata->entries[i];
        for (size_t k = 0; k < entry->piece_count; k++)
            *key++ = (struct piece_key){i, entry->is_tensor ? entry->ndim : -1,
                                        entry->pieces[k].offsets};
    }
    RETURN_IF_ERROR(piece_table_init(&join->table, join->keys, join->count));
    for (size_t i = 0; i < join->count; i++)
        piece_table_add(&join->table, i);
    return DCP_OK;
}

static bool is_at(const struct metadata_entry *entry, uint64_t position,
                  const struct digested_index *index)
{
    return position < entry->piece_count && index->ndim == entry->ndim &&
           memcmp(entry->pieces[position].offsets, index->offset,
                  (size_t)index->ndim * sizeof *index->offset) == 0;
}

/* First tries the hint; without one, the next piece, as pieces are mostly in the order of chunks.
 * Otherwise searches by offset; the first of equal ones. */
static dcp_status find_piece(struct join *join, const struct digested_index *index,
                             uint32_t entry_index, struct metadata_piece **piece)
{
    const struct metadata_entry *entry = &join->decoding->metadata->entries[entry_index];
    char text[200];
    if (index->ndim < 0 && !entry->is_tensor) {
        *piece = entry->pieces;
        return DCP_OK;
    }
    uint32_t *expected = &join->expected[entry_index];
    bool hinted = index->hint != UINT64_MAX;
    uint64_t likely = hinted ? index->hint : *expected;
    if (is_at(entry, likely, index) &&
        (hinted || likely == 0 || !is_at(entry, likely - 1, index))) {
        *expected = (uint32_t)likely + 1;
        *piece = &entry->pieces[likely];
        return DCP_OK;
    }
    if (join->keys == NULL)
        RETURN_IF_ERROR(build_table(join));
    struct piece_key key = {entry_index, index->ndim, index->offset};
    size_t position = piece_table_find(&join->table, &key);
    if (position == PIECE_NOT_FOUND)
        return dcp_error_set(DCP_ERR_FORMAT, "storage_data has no chunk at %s",
                             index->ndim < 0
                                 ? "no offset"
                                 : shape_format(index->ndim, index->offset, text, sizeof text));
    *piece = &join->pieces[position];
    *expected = (uint32_t)(*piece - entry->pieces) + 1;
    return DCP_OK;
}

/* ---- filling it ---- */

static dcp_status add_file(struct join *join, const struct digested_storage *storage,
                           uint64_t *place)
{
    struct metadata *metadata = join->decoding->metadata;
    bool existing;
    RETURN_IF_ERROR(relative_path_check(storage->path, storage->path_length));
    char *path = arena_copy_text(&metadata->arena, storage->path, storage->path_length);
    if (path == NULL)
        return error_no_memory(storage->path_length, "a file's name");
    *place = metadata->file_count;
    metadata->files[metadata->file_count++] = path;
    return name_table_add(&join->file_indices, path, storage->path_length, place, &existing);
}

static dcp_status find_file(struct join *join, const struct digested_storage *storage,
                            uint32_t *file)
{
    const struct digested_storage *last = join->last_storage;
    if (last == NULL || last->path != storage->path || last->path_length != storage->path_length) {
        uint64_t place;
        if (!name_table_find(&join->file_indices, storage->path, storage->path_length, &place))
            RETURN_IF_ERROR(add_file(join, storage, &place));
        join->last_storage = storage;
        join->last_file = (uint32_t)place;
    }
    *file = join->last_file;
    return DCP_OK;
}

static dcp_status check_length(const struct metadata_entry *entry,
                               const struct metadata_piece *piece)
{
    uint64_t bytes;
    if (!entry->is_tensor)
        return DCP_OK;
    if (!shape_bytes(entry->ndim, piece->sizes, entry->dtype, &bytes))
        return dcp_error_set(DCP_ERR_FORMAT, "the size of a chunk overflows");
    if (!piece->zstd && piece->length < bytes)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "the chunk has %" PRIu64 " bytes, but only %" PRIu64
                             " bytes are stored",
                             bytes, piece->length);
    return DCP_OK;
}

static dcp_status join_pair(struct join *join, const struct digested_index *index,
                            const struct pickle_value *value)
{
    const struct digested_storage *storage = NULL;
    struct metadata_piece *piece = NULL;
    uint32_t entry = 0;
    RETURN_IF_ERROR(metadata_storage(&join->decoding->digester, value, &storage));
    RETURN_IF_ERROR(find_entry(join, index, &entry));
    RETURN_IF_ERROR(find_piece(join, index, entry, &piece));
    RETURN_IF_ERROR(find_file(join, storage, &piece->file));
    piece->zstd = storage->zstd;
    piece->offset = storage->offset;
    piece->length = storage->length;
    return check_length(&join->decoding->metadata->entries[entry], piece);
}

static dcp_status join_pairs(struct join *join, const struct pickle_sequence *pairs)
{
    size_t entries = join->decoding->metadata->count;
    join->expected =
        arena_allocate_array(&join->decoding->scratch, entries, sizeof *join->expected);
    if (join->expected == NULL)
        return error_no_memory(entries * sizeof *join->expected, "the order of pieces");
    if (entries != 0)
        memset(join->expected, 0, entries * sizeof *join->expected);
    for (uint32_t i = 0; i < pairs->count; i += 2) {
        const struct digested_index *index = NULL;
        dcp_status status = metadata_index_key(&join->decoding->digester, pairs->items[i], &index);
        if (status != DCP_OK)
            return error_prefix(status, "metadata, key %" PRIu32 " of storage_data", i / 2);
        status = join_pair(join, index, pairs->items[i + 1]);
        if (status != DCP_OK)
            return metadata_prefix_name(status, index->name, index->name_length);
    }
    return DCP_OK;
}

static dcp_status check_all_found(const struct join *join)
{
    const struct metadata *metadata = join->decoding->metadata;
    char text[200];
    for (size_t i = 0; i < metadata->count; i++) {
        const struct metadata_entry *entry = &metadata->entries[i];
        for (size_t k = 0; k < entry->piece_count; k++) {
            const struct metadata_piece *piece = &entry->pieces[k];
            if (piece->length != 0)
                continue;
            const char *place = entry->is_tensor
                                    ? shape_format(entry->ndim, piece->offsets, text, sizeof text)
                                    : "the object";
            return metadata_prefix_name(
                dcp_error_set(DCP_ERR_FORMAT, "storage_data has no entry for %s%s",
                              entry->is_tensor ? "the chunk at " : "", place),
                entry->name, strlen(entry->name));
        }
    }
    return DCP_OK;
}

dcp_status metadata_decode_pieces(struct metadata_decoding *decoding,
                                  const struct pickle_value *storage_data)
{
    if (storage_data == NULL || storage_data->kind != PICKLE_DICT)
        return dcp_error_set(DCP_ERR_FORMAT, "metadata: storage_data is %s, expected a dict",
                             pickle_kind_name(storage_data));
    const struct pickle_sequence *pairs = &storage_data->as.sequence;
    struct metadata *metadata = decoding->metadata;
    struct join join = {.decoding = decoding};
    name_table_init(&join.file_indices);
    dcp_status status = add_entries(&join, pairs->count / 2);
    metadata->files =
        arena_allocate_array(&metadata->arena, pairs->count / 2, sizeof *metadata->files);
    if (status == DCP_OK && metadata->files == NULL)
        status = error_no_memory(pairs->count * sizeof *metadata->files, "the names of files");
    if (status == DCP_OK)
        status = join_pairs(&join, pairs);
    if (status == DCP_OK)
        status = check_all_found(&join);
    name_table_free(&join.file_indices);
    piece_table_free(&join.table);
    memory_release(join.keys);
    return status;
}
