/* SPDX-License-Identifier: BSD-3-Clause */
/* The form:
 *
 *   whether there are paths, save id, checkpoint id, load id, number of modules, their names
 *   number of files, the name of each, whether their sizes are known, the size of each
 *   number of extra files, per file: its name in the directory, size, XXH3
 *   number of entries, per entry: name, flags, path (if it is more than the name: number of parts,
 *   per part 0 and a position, or 1 and a key); of a tensor dtype, number of dimensions and shape;
 *   number of pieces, per piece: its encoding and whether it is compressed, file, offset, length,
 * of a tensor its offsets and sizes, and what is not all of a stream: the view, the range, or the
 *   object's bytes
 *
 * All numbers are varints. A text that may be missing has a byte in front that says whether it is
 * there. */
#include "format/metadata/metadata_compact.h"

#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "format/metadata/metadata_codec.h"
#include "format/metadata/metadata_compact_view.h"
#include "format/metadata/relative_path.h"
#include "state/extra_file.h"

enum entry_flags { ENTRY_TENSOR = 1, ENTRY_REQUIRES_GRAD = 2, ENTRY_PATH = 4 };

/* The least that things take, for a bound on how many there can be. */
enum { TEXT_LEAST = 1, PART_LEAST = 2, EXTRA_LEAST = 3, ENTRY_LEAST = 3, PIECE_LEAST = 4 };

bool metadata_fits_compact(const struct metadata *metadata)
{
    return metadata->member_count == 0 && metadata->replica_count == 0 && !metadata->attachment &&
           !metadata->planner_data;
}

static dcp_status no_memory(size_t size)
{
    return error_no_memory(size, "metadata in compact form");
}

/* ---- appending ---- */

/* Files as they are numbered in the form. */
struct file_order {
    size_t count;
    uint32_t *files;   /* by number: the index in the metadata; NULL: the same */
    uint32_t *numbers; /* by index in the metadata; NULL: the same */
};

static void append_text(struct buffer *out, const char *text)
{
    buffer_append_text(out, text, strlen(text));
}

static void append_optional(struct buffer *out, const char *text)
{
    buffer_append_u8(out, text != NULL);
    if (text)
        append_text(out, text);
}

static void append_numbers(struct buffer *out, int32_t count, const int64_t *numbers)
{
    for (int32_t i = 0; i < count; i++)
        buffer_append_varint(out, (uint64_t)numbers[i]);
}

static bool is_plain(const struct metadata_entry *entry)
{
    return entry->path_length == 1 && entry->path->key &&
           strcmp(entry->path->key, entry->name) == 0;
}

static void append_path(struct buffer *out, const struct metadata_entry *entry)
{
    buffer_append_varint(out, entry->path_length);
    for (size_t i = 0; i < entry->path_length; i++) {
        append_optional(out, entry->path[i].key);
        if (!entry->path[i].key)
            buffer_append_varint(out, (uint64_t)entry->path[i].position);
    }
}

static void append_piece(struct buffer *out, const struct metadata_piece *piece, int32_t ndim,
                         uint32_t file)
{
    buffer_append_u8(out, (uint8_t)(piece->encoding << 1 | (piece->zstd ? 1 : 0)));
    buffer_append_varint(out, file);
    buffer_append_varint(out, piece->offset);
    buffer_append_varint(out, piece->length);
    append_numbers(out, ndim, piece->offsets);
    append_numbers(out, ndim, piece->sizes);
    if (piece->encoding == PIECE_HELD)
        buffer_append(out, piece->object, (size_t)piece->length);
    else if (piece->encoding == PIECE_RANGE)
        metadata_compact_append_range(piece, out);
    else if (piece->encoding != PIECE_STREAM)
        metadata_compact_append_view(piece, out);
}

static void append_entry(struct buffer *out, const struct metadata_entry *entry, bool has_paths,
                         const uint32_t *numbers)
{
    bool plain = !has_paths || is_plain(entry);
    int32_t ndim = entry->is_tensor ? entry->ndim : 0;
    append_text(out, entry->name);
    buffer_append_u8(out, (uint8_t)((entry->is_tensor ? ENTRY_TENSOR : 0) |
                                    (entry->requires_grad ? ENTRY_REQUIRES_GRAD : 0) |
                                    (plain ? 0 : ENTRY_PATH)));
    if (!plain)
        append_path(out, entry);
    if (entry->is_tensor) {
        buffer_append_varint(out, (uint64_t)entry->dtype);
        buffer_append_varint(out, (uint64_t)ndim);
        append_numbers(out, ndim, entry->global_shape);
    }
    buffer_append_varint(out, entry->piece_count);
    for (size_t i = 0; i < entry->piece_count; i++)
        append_piece(out, &entry->pieces[i], ndim,
                     numbers ? numbers[entry->pieces[i].file] : entry->pieces[i].file);
}

static void append_extra_files(struct buffer *out, const struct metadata *metadata)
{
    buffer_append_varint(out, metadata->extra_file_count);
    for (size_t i = 0; i < metadata->extra_file_count; i++) {
        const struct extra_file *extra = &metadata->extra_files[i];
        append_text(out, extra->file);
        buffer_append_varint(out, extra->size);
        buffer_append_varint(out, extra->digest);
    }
}

static void append_files(struct buffer *out, const struct metadata *metadata,
                         const struct file_order *order)
{
    buffer_append_varint(out, order->count);
    for (size_t i = 0; i < order->count; i++)
        append_text(out, metadata->files[order->files ? order->files[i] : i]);
    buffer_append_u8(out, metadata->file_sizes != NULL);
    for (size_t i = 0; metadata->file_sizes && i < order->count; i++)
        buffer_append_varint(out, metadata->file_sizes[order->files ? order->files[i] : i]);
}

static dcp_status append_all(const struct metadata *metadata, bool has_paths,
                             const struct file_order *order, struct buffer *out)
{
    buffer_append_u8(out, has_paths);
    append_text(out, metadata->save_id);
    append_optional(out, metadata->checkpoint_id);
    append_optional(out, metadata->load_id);
    buffer_append_varint(out, metadata->module_count);
    for (size_t i = 0; i < metadata->module_count; i++)
        append_text(out, metadata->modules[i]);
    append_files(out, metadata, order);
    append_extra_files(out, metadata);
    buffer_append_varint(out, metadata->count);
    for (size_t i = 0; i < metadata->count; i++)
        append_entry(out, &metadata->entries[i], has_paths, order->numbers);
    return buffer_status(out);
}

static void order_by_use(const struct metadata *metadata, struct file_order *order)
{
    for (size_t i = 0; i < metadata->file_count; i++)
        order->numbers[i] = UINT32_MAX;
    for (size_t i = 0; i < metadata->count; i++)
        for (size_t k = 0; k < metadata->entries[i].piece_count; k++) {
            uint32_t file = metadata->entries[i].pieces[k].file;
            if (order->numbers[file] != UINT32_MAX)
                continue;
            order->numbers[file] = (uint32_t)order->count;
            order->files[order->count++] = file;
        }
}

dcp_status metadata_compact_append(const struct metadata *metadata, struct buffer *out)
{
    const struct file_order as_they_are = {.count = metadata->file_count};
    return append_all(metadata, metadata->has_paths, &as_they_are, out);
}

dcp_status metadata_compact_append_stored(const struct metadata *metadata, struct buffer *out)
{
    size_t count = metadata->file_count;
    struct file_order order = {.files = memory_allocate_array(count, sizeof *order.files),
                               .numbers = memory_allocate_array(count, sizeof *order.numbers)};
    dcp_status status = DCP_OK;
    if (!order.files || !order.numbers)
        status = no_memory(2 * count * sizeof *order.files);
    if (status == DCP_OK) {
        order_by_use(metadata, &order);
        status = append_all(metadata, metadata->has_paths && metadata->count != 0, &order, out);
    }
    memory_release(order.files);
    memory_release(order.numbers);
    return status;
}

/* ---- reading ---- */

static dcp_status fault(const char *what)
{
    return dcp_error_set(DCP_ERR_FORMAT, "metadata in compact form: %s", what);
}

static dcp_status read_name(struct reader *reader, struct arena *arena, const char **text,
                            size_t *length)
{
    const char *bytes = reader_text(reader, length);
    if (!bytes || memchr(bytes, '\0', *length) || !utf8_is_valid(bytes, *length))
        return fault("an invalid text");
    *text = arena_copy_text(arena, bytes, *length);
    return *text ? DCP_OK : no_memory(*length);
}

static dcp_status read_text(struct reader *reader, struct arena *arena, const char **text)
{
    size_t length;
    return read_name(reader, arena, text, &length);
}

static dcp_status read_optional(struct reader *reader, struct arena *arena, const char **text)
{
    *text = NULL;
    return reader_u8(reader) != 0 ? read_text(reader, arena, text) : DCP_OK;
}

/* A count of things that take so many bytes each, and room for them. */
static dcp_status read_array(struct reader *reader, struct arena *arena, size_t least, size_t size,
                             size_t *count, void **items)
{
    uint64_t stated = reader_varint(reader);
    if (reader->failed || stated > reader_left(reader) / least)
        return fault("a count that its bytes cannot hold");
    *items = arena_allocate_array(arena, (size_t)stated, size);
    if (!*items)
        return no_memory((size_t)stated * size);
    memset(*items, 0, (size_t)stated * size);
    *count = (size_t)stated;
    return DCP_OK;
}

static dcp_status read_texts(struct reader *reader, struct arena *arena, size_t *count,
                             const char ***texts)
{
    void *items;
    RETURN_IF_ERROR(read_array(reader, arena, TEXT_LEAST, sizeof **texts, count, &items));
    *texts = items;
    for (size_t i = 0; i < *count; i++)
        RETURN_IF_ERROR(read_text(reader, arena, &(*texts)[i]));
    return DCP_OK;
}

static dcp_status read_files(struct reader *reader, struct metadata *metadata)
{
    RETURN_IF_ERROR(read_texts(reader, &metadata->arena, &metadata->file_count, &metadata->files));
    for (size_t i = 0; i < metadata->file_count; i++)
        RETURN_IF_ERROR(relative_path_check(metadata->files[i], strlen(metadata->files[i])));
    if (metadata->file_count > UINT32_MAX)
        return fault("too many files");
    if (reader_u8(reader) == 0)
        return DCP_OK;
    uint64_t *sizes = arena_allocate_array(&metadata->arena, metadata->file_count, sizeof *sizes);
    if (!sizes)
        return no_memory(metadata->file_count * sizeof *sizes);
    for (size_t i = 0; i < metadata->file_count; i++)
        sizes[i] = reader_varint(reader);
    metadata->file_sizes = sizes;
    return DCP_OK;
}

static dcp_status read_extra_files(struct reader *reader, struct metadata *metadata)
{
    void *items;
    int rank;
    uint32_t generation;
    RETURN_IF_ERROR(read_array(reader, &metadata->arena, EXTRA_LEAST, sizeof(struct extra_file),
                               &metadata->extra_file_count, &items));
    struct extra_file *extras = items;
    metadata->extra_files = extras;
    for (size_t i = 0; i < metadata->extra_file_count; i++) {
        RETURN_IF_ERROR(read_text(reader, &metadata->arena, &extras[i].file));
        if (!extra_file_parse(extras[i].file, &rank, &generation, &extras[i].name))
            return fault("an extra file of no such name");
        extras[i].size = reader_varint(reader);
        extras[i].digest = reader_varint(reader);
        if (extras[i].size > INT64_MAX)
            return fault("an extra file of no such size");
    }
    return DCP_OK;
}

static dcp_status read_path(struct reader *reader, struct arena *arena, bool plain,
                            struct metadata_entry *entry)
{
    dcp_path_part *path;
    void *items;
    if (plain) {
        const dcp_path_part part = {.key = entry->name};
        entry->path = arena_copy(arena, &part, sizeof part);
        entry->path_length = 1;
        return entry->path ? DCP_OK : no_memory(sizeof part);
    }
    RETURN_IF_ERROR(
        read_array(reader, arena, PART_LEAST, sizeof *path, &entry->path_length, &items));
    entry->path = path = items;
    for (size_t i = 0; i < entry->path_length; i++) {
        RETURN_IF_ERROR(read_optional(reader, arena, &path[i].key));
        uint64_t position = path[i].key ? 0 : reader_varint(reader);
        if (position > INT64_MAX)
            return fault("an invalid path");
        path[i].position = (int64_t)position;
    }
    return entry->path_length != 0 ? DCP_OK : fault("a path without parts");
}

/* metadata_check_chunks() looks at what they are. */
static void read_numbers(struct reader *reader, int32_t count, int64_t *numbers)
{
    for (int32_t i = 0; i < count; i++)
        numbers[i] = (int64_t)reader_varint(reader);
}

static dcp_status read_tensor(struct reader *reader, struct arena *arena,
                              struct metadata_entry *entry)
{
    uint64_t dtype = reader_varint(reader), ndim = reader_varint(reader), bytes;
    if (reader->failed || dtype > UINT8_MAX || !dcp_dtype_name((dcp_dtype)dtype) ||
        ndim > DCP_MAX_DIMS)
        return fault("a tensor of no dtype, or of too many dimensions");
    int64_t *shape = arena_allocate_array(arena, (size_t)ndim, sizeof *shape);
    if (!shape)
        return no_memory((size_t)ndim * sizeof *shape);
    entry->is_tensor = true;
    entry->dtype = (dcp_dtype)dtype;
    entry->ndim = (int32_t)ndim;
    entry->global_shape = shape;
    read_numbers(reader, entry->ndim, shape);
    return shape_bytes(entry->ndim, shape, entry->dtype, &bytes) ? DCP_OK
                                                                 : fault("an invalid shape");
}

static bool piece_fits(const struct metadata *metadata, const struct metadata_entry *entry,
                       const struct metadata_piece *piece)
{
    uint64_t bytes = 0;
    bool stream = metadata_is_in_stream(piece);
    if (piece->file >= metadata->file_count || (stream && piece->length == 0) ||
        piece->length > INT64_MAX || piece->offset > INT64_MAX - piece->length ||
        (!stream && piece->zstd))
        return false;
    if (!entry->is_tensor)
        return piece->encoding == PIECE_STREAM || piece->encoding == PIECE_HELD;
    if (!stream)
        return piece->encoding == PIECE_VIEW || piece->encoding == PIECE_RAW;
    return shape_bytes(entry->ndim, piece->sizes, entry->dtype, &bytes) &&
           (piece->zstd || piece->length >= bytes);
}

/* What is not all of a stream. */
static dcp_status read_rest(struct reader *reader, struct arena *arena,
                            const struct metadata_entry *entry, struct metadata_piece *piece)
{
    if (piece->encoding == PIECE_STREAM)
        return DCP_OK;
    if (piece->encoding == PIECE_RANGE)
        return metadata_compact_read_range(reader, arena, entry, piece);
    if (piece->encoding != PIECE_HELD)
        return metadata_compact_read_view(reader, arena, entry, piece);
    size_t size = (size_t)piece->length;
    const void *bytes = reader_bytes(reader, size);
    if (!bytes)
        return fault("an object that ends too early");
    piece->object = arena_copy(arena, bytes, size);
    return piece->object ? DCP_OK : no_memory(size);
}

/* The numbers of all pieces of a tensor take one allocation. */
static dcp_status read_pieces(struct reader *reader, struct metadata *metadata,
                              struct metadata_entry *entry)
{
    size_t ndim = (size_t)entry->ndim;
    void *items;
    RETURN_IF_ERROR(read_array(reader, &metadata->arena, PIECE_LEAST + 2 * ndim,
                               sizeof *entry->pieces, &entry->piece_count, &items));
    entry->pieces = items;
    int64_t *numbers =
        arena_allocate_array(&metadata->arena, entry->piece_count, 2 * ndim * sizeof *numbers);
    if (!numbers)
        return no_memory(entry->piece_count * 2 * ndim * sizeof *numbers);
    if (!entry->is_tensor && entry->piece_count != 1)
        return fault("an object in several pieces");
    for (size_t i = 0; i < entry->piece_count; i++, numbers += 2 * ndim) {
        struct metadata_piece *piece = &entry->pieces[i];
        uint8_t how = reader_u8(reader);
        piece->encoding = how >> 1;
        piece->zstd = (how & 1) != 0;
        uint64_t file = reader_varint(reader);
        piece->file = file < UINT32_MAX ? (uint32_t)file : UINT32_MAX;
        piece->offset = reader_varint(reader);
        piece->length = reader_varint(reader);
        read_numbers(reader, 2 * entry->ndim, numbers);
        if (entry->is_tensor) {
            piece->offsets = numbers;
            piece->sizes = numbers + ndim;
        }
        if (reader->failed || !piece_fits(metadata, entry, piece))
            return fault("a piece that is nowhere");
        RETURN_IF_ERROR(read_rest(reader, &metadata->arena, entry, piece));
    }
    return DCP_OK;
}

static dcp_status read_entry(struct reader *reader, struct metadata *metadata, size_t index)
{
    struct metadata_entry *entry = &metadata->entries[index];
    size_t length;
    RETURN_IF_ERROR(read_name(reader, &metadata->arena, &entry->name, &length));
    RETURN_IF_ERROR(metadata_index_entry(metadata, index, length));
    unsigned flags = reader_u8(reader);
    entry->requires_grad = (flags & ENTRY_REQUIRES_GRAD) != 0;
    RETURN_IF_ERROR(read_path(reader, &metadata->arena, (flags & ENTRY_PATH) == 0, entry));
    if ((flags & ENTRY_TENSOR) != 0)
        RETURN_IF_ERROR(read_tensor(reader, &metadata->arena, entry));
    return read_pieces(reader, metadata, entry);
}

static dcp_status read_metadata(struct reader *reader, struct metadata *metadata)
{
    struct arena *arena = &metadata->arena;
    const char **modules;
    void *items;
    metadata->has_paths = reader_u8(reader) != 0;
    RETURN_IF_ERROR(read_text(reader, arena, &metadata->save_id));
    RETURN_IF_ERROR(read_optional(reader, arena, &metadata->checkpoint_id));
    RETURN_IF_ERROR(read_optional(reader, arena, &metadata->load_id));
    RETURN_IF_ERROR(read_texts(reader, arena, &metadata->module_count, &modules));
    metadata->modules = modules;
    RETURN_IF_ERROR(read_files(reader, metadata));
    RETURN_IF_ERROR(read_extra_files(reader, metadata));
    RETURN_IF_ERROR(read_array(reader, arena, ENTRY_LEAST, sizeof *metadata->entries,
                               &metadata->count, &items));
    metadata->entries = items;
    for (size_t i = 0; i < metadata->count; i++)
        RETURN_IF_ERROR(read_entry(reader, metadata, i));
    return reader->failed || reader_left(reader) != 0 ? fault("cut short, or too long") : DCP_OK;
}

dcp_status metadata_compact_read_part(const void *bytes, size_t size, struct metadata *metadata)
{
    struct reader reader;
    reader_init(&reader, bytes, size);
    metadata_init(metadata);
    dcp_status status = read_metadata(&reader, metadata);
    if (status != DCP_OK)
        metadata_free(metadata);
    return status;
}

dcp_status metadata_compact_read(const void *bytes, size_t size, struct metadata *metadata)
{
    RETURN_IF_ERROR(metadata_compact_read_part(bytes, size, metadata));
    dcp_status status = metadata_check_chunks(metadata);
    if (status != DCP_OK)
        metadata_free(metadata);
    return status;
}
