/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "base/buffer.h"
#include "base/checked.h"
#include "base/error.h"
#include "format/footer/footer_layout.h"
#include "format/metadata/relative_path.h"

/* The least bytes of an entry and of a piece, to bound their numbers. */
enum { ENTRY_BYTES_MIN = 6, PIECE_BYTES_MIN = 3 };

struct decoder {
    struct reader reader;
    struct footer *footer;
};

static dcp_status damaged(const char *what)
{
    return dcp_error_set(DCP_ERR_FORMAT, "the shard footer is malformed: %s", what);
}

static dcp_status no_memory(size_t size)
{
    return error_no_memory(size, "a shard footer");
}

/* Text for the life of the footer: UTF-8 without NUL. */
static dcp_status read_name(struct decoder *decoder, const char **text, size_t *length)
{
    const char *bytes = reader_text(&decoder->reader, length);
    if (bytes == NULL)
        return damaged("a text ends too early");
    if (memchr(bytes, '\0', *length) != NULL || !utf8_is_valid(bytes, *length))
        return damaged("a text is not UTF-8, or contains NUL");
    *text = arena_copy_text(&decoder->footer->contents.arena, bytes, *length);
    return *text != NULL ? DCP_OK : no_memory(*length);
}

static dcp_status read_text(struct decoder *decoder, const char **text)
{
    size_t length;
    return read_name(decoder, text, &length);
}

/* A count of things that take at least size_min bytes each, and room for them. */
static dcp_status read_array(struct decoder *decoder, size_t size_min, size_t item_size,
                             size_t *count, void **items)
{
    uint64_t stored = reader_varint(&decoder->reader);
    if (decoder->reader.failed || stored > reader_left(&decoder->reader) / size_min)
        return damaged("a count is larger than its bytes can hold");
    *count = (size_t)stored;
    *items = arena_allocate_array(&decoder->footer->contents.arena, *count, item_size);
    if (*items == NULL)
        return no_memory(*count * item_size);
    memset(*items, 0, *count * item_size);
    return DCP_OK;
}

static dcp_status read_numbers(struct decoder *decoder, int32_t count, const int64_t **numbers)
{
    int64_t *copy = arena_allocate_array(&decoder->footer->contents.arena, (size_t)count, 8);
    if (copy == NULL)
        return no_memory((size_t)count * 8);
    for (int32_t i = 0; i < count; i++) {
        uint64_t number = reader_varint(&decoder->reader);
        if (decoder->reader.failed || number > INT64_MAX)
            return damaged("a shape is invalid");
        copy[i] = (int64_t)number;
    }
    *numbers = copy;
    return DCP_OK;
}

static dcp_status read_pages(struct decoder *decoder)
{
    struct footer *footer = decoder->footer;
    uint64_t count = footer_page_count(footer->block_count);
    if (count > reader_left(&decoder->reader) / 8)
        return damaged("there are too few checksums for the file");
    footer->page_count = (size_t)count;
    uint64_t *pages =
        arena_allocate_array(&footer->contents.arena, footer->page_count, sizeof *pages);
    if (pages == NULL)
        return no_memory(footer->page_count * sizeof *pages);
    for (size_t i = 0; i < footer->page_count; i++)
        pages[i] = reader_u64(&decoder->reader);
    footer->pages = pages;
    return DCP_OK;
}

static dcp_status read_path(struct decoder *decoder, struct metadata_entry *entry)
{
    dcp_path_part *path = NULL;
    size_t count = 0;
    void *items = NULL;
    if (decoder->footer->contents.has_paths) {
        RETURN_IF_ERROR(read_array(decoder, 2, sizeof *path, &count, &items));
        path = items;
        for (size_t i = 0; i < count; i++) {
            unsigned step = reader_u8(&decoder->reader);
            uint64_t position = 0;
            if (step == FOOTER_STEP_KEY)
                RETURN_IF_ERROR(read_text(decoder, &path[i].key));
            else
                position = reader_varint(&decoder->reader);
            if (decoder->reader.failed || step > FOOTER_STEP_POSITION || position > INT64_MAX)
                return damaged("a path is invalid");
            path[i].position = (int64_t)position;
        }
    } else {
        count = 1;
        path = arena_allocate(&decoder->footer->contents.arena, sizeof *path);
        if (path == NULL)
            return no_memory(sizeof *path);
        *path = (dcp_path_part){.key = entry->name};
    }
    if (count == 0)
        return damaged("a path has no parts");
    entry->path = path;
    entry->path_length = count;
    return DCP_OK;
}

static dcp_status read_piece(struct decoder *decoder, const struct metadata_entry *entry,
                             struct metadata_piece *piece)
{
    unsigned flags = reader_u8(&decoder->reader);
    piece->encoding = PIECE_STREAM;
    piece->zstd = flags == FOOTER_ZSTD;
    piece->offset = reader_varint(&decoder->reader);
    piece->length = reader_varint(&decoder->reader);
    uint64_t end = 0;
    if (decoder->reader.failed || flags > FOOTER_ZSTD ||
        !checked_add_u64(piece->offset, piece->length, &end) ||
        end > decoder->footer->content_length)
        return damaged("a piece is not inside its file");
    if (!entry->is_tensor)
        return DCP_OK;
    RETURN_IF_ERROR(read_numbers(decoder, entry->ndim, &piece->offsets));
    RETURN_IF_ERROR(read_numbers(decoder, entry->ndim, &piece->sizes));
    struct box box = {entry->ndim, piece->offsets, piece->sizes};
    return box_check(box, entry->global_shape) ? DCP_OK
                                               : damaged("a chunk is not inside its tensor");
}

static dcp_status read_tensor(struct decoder *decoder, struct metadata_entry *entry)
{
    unsigned dtype = reader_u8(&decoder->reader);
    unsigned ndim = reader_u8(&decoder->reader);
    uint64_t bytes = 0;
    if (decoder->reader.failed || dcp_dtype_name((dcp_dtype)dtype) == NULL || ndim > DCP_MAX_DIMS)
        return damaged("a tensor has an unknown dtype, or too many dimensions");
    entry->is_tensor = true;
    entry->dtype = (dcp_dtype)dtype;
    entry->ndim = (int32_t)ndim;
    RETURN_IF_ERROR(read_numbers(decoder, entry->ndim, &entry->global_shape));
    return shape_bytes(entry->ndim, entry->global_shape, entry->dtype, &bytes)
               ? DCP_OK
               : damaged("a tensor exceeds 2^63 bytes");
}

static dcp_status read_entry(struct decoder *decoder, size_t index)
{
    struct metadata *contents = &decoder->footer->contents;
    struct metadata_entry *entry = &contents->entries[index];
    size_t length;
    RETURN_IF_ERROR(read_name(decoder, &entry->name, &length));
    RETURN_IF_ERROR(metadata_index_entry(contents, index, length));
    RETURN_IF_ERROR(read_path(decoder, entry));
    unsigned flags = reader_u8(&decoder->reader);
    if (decoder->reader.failed || flags > (FOOTER_TENSOR | FOOTER_REQUIRES_GRAD))
        return damaged("an entry is of an unknown kind");
    entry->requires_grad = (flags & FOOTER_REQUIRES_GRAD) != 0;
    if ((flags & FOOTER_TENSOR) != 0)
        RETURN_IF_ERROR(read_tensor(decoder, entry));
    void *pieces = NULL;
    RETURN_IF_ERROR(read_array(decoder, PIECE_BYTES_MIN + 2 * (size_t)entry->ndim,
                               sizeof *entry->pieces, &entry->piece_count, &pieces));
    entry->pieces = pieces;
    if (entry->piece_count == 0 || (!entry->is_tensor && entry->piece_count != 1))
        return damaged("an entry has a wrong number of pieces");
    for (size_t i = 0; i < entry->piece_count; i++)
        RETURN_IF_ERROR(read_piece(decoder, entry, &entry->pieces[i]));
    return DCP_OK;
}

static dcp_status read_file_name(struct decoder *decoder)
{
    struct metadata *contents = &decoder->footer->contents;
    contents->files = arena_allocate(&contents->arena, sizeof *contents->files);
    if (contents->files == NULL)
        return no_memory(sizeof *contents->files);
    RETURN_IF_ERROR(read_text(decoder, &contents->files[0]));
    RETURN_IF_ERROR(relative_path_check(contents->files[0], strlen(contents->files[0])));
    contents->file_count = 1;
    return DCP_OK;
}

static dcp_status read_save_id(struct decoder *decoder)
{
    struct footer *footer = decoder->footer;
    RETURN_IF_ERROR(read_text(decoder, &footer->contents.save_id));
    size_t length = strlen(footer->contents.save_id);
    if (length >= sizeof footer->save_id)
        return damaged("the save id is too long");
    memcpy(footer->save_id, footer->contents.save_id, length + 1);
    return DCP_OK;
}

static dcp_status read_entries(struct decoder *decoder)
{
    struct metadata *contents = &decoder->footer->contents;
    contents->has_paths = (reader_u8(&decoder->reader) & FOOTER_HAS_PATHS) != 0;
    void *entries = NULL;
    RETURN_IF_ERROR(read_array(decoder, ENTRY_BYTES_MIN, sizeof *contents->entries,
                               &contents->count, &entries));
    contents->entries = entries;
    for (size_t i = 0; i < contents->count; i++)
        RETURN_IF_ERROR(read_entry(decoder, i));
    return DCP_OK;
}

/* Ignores what later versions put behind the entries. */
dcp_status footer_decode_body(const unsigned char *body, size_t size, struct footer *footer)
{
    struct decoder decoder = {.footer = footer};
    reader_init(&decoder.reader, body, size);
    RETURN_IF_ERROR(read_save_id(&decoder));
    RETURN_IF_ERROR(read_pages(&decoder));
    RETURN_IF_ERROR(read_file_name(&decoder));
    return read_entries(&decoder);
}
