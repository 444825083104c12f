/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <string.h>

#include "base/checksum.h"
#include "base/error.h"
#include "format/footer/footer_layout.h"

uint64_t footer_block_count(uint64_t content_length, uint32_t block_size)
{
    return content_length / block_size + (content_length % block_size != 0);
}

uint64_t footer_page_count(uint64_t block_count)
{
    return block_count / FOOTER_PAGE_SUMS + (block_count % FOOTER_PAGE_SUMS != 0);
}

void footer_seal_sums(uint64_t *sums, size_t count, uint64_t *pages)
{
    for (size_t i = 0; i < count; i++)
        store_u64((unsigned char *)&sums[i], sums[i]);
    for (size_t start = 0; start < count; start += FOOTER_PAGE_SUMS) {
        size_t taken = count - start < FOOTER_PAGE_SUMS ? count - start : FOOTER_PAGE_SUMS;
        pages[start / FOOTER_PAGE_SUMS] = xxh3_64(&sums[start], taken * sizeof *sums);
    }
}

static dcp_status check_contents(const char *save_id, uint64_t content_length, uint32_t block_size,
                                 size_t page_count, const struct metadata *contents)
{
    if (strlen(save_id) >= sizeof((struct footer *)NULL)->save_id)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the save id \"%s\" is too long", save_id);
    if (block_size == 0 ||
        page_count != footer_page_count(footer_block_count(content_length, block_size)))
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "%zu pages of sums of blocks of %" PRIu32 " bytes for %" PRIu64
                             " bytes",
                             page_count, block_size, content_length);
    if (contents->file_count != 1)
        return dcp_error_set(DCP_ERR_ARGUMENT, "a footer describes one file, not %zu",
                             contents->file_count);
    for (size_t i = 0; i < contents->count; i++) {
        const struct metadata_entry *entry = &contents->entries[i];
        for (size_t p = 0; p < entry->piece_count; p++)
            if (entry->pieces[p].encoding != PIECE_STREAM)
                return dcp_error_set(DCP_ERR_ARGUMENT, "\"%s\" is not stored as a stream",
                                     entry->name);
    }
    return DCP_OK;
}

static void put_text(struct buffer *out, const char *text)
{
    buffer_append_text(out, text, strlen(text));
}

static void put_numbers(struct buffer *out, int32_t count, const int64_t *numbers)
{
    for (int32_t i = 0; i < count; i++)
        buffer_append_varint(out, (uint64_t)numbers[i]);
}

static void put_path(struct buffer *out, const struct metadata_entry *entry)
{
    buffer_append_varint(out, entry->path_length);
    for (size_t i = 0; i < entry->path_length; i++) {
        const dcp_path_part *part = &entry->path[i];
        buffer_append_u8(out, part->key != NULL ? FOOTER_STEP_KEY : FOOTER_STEP_POSITION);
        if (part->key != NULL)
            put_text(out, part->key);
        else
            buffer_append_varint(out, (uint64_t)part->position);
    }
}

static void put_piece(struct buffer *out, const struct metadata_entry *entry,
                      const struct metadata_piece *piece)
{
    buffer_append_u8(out, piece->zstd ? FOOTER_ZSTD : 0);
    buffer_append_varint(out, piece->offset);
    buffer_append_varint(out, piece->length);
    if (entry->is_tensor) {
        put_numbers(out, entry->ndim, piece->offsets);
        put_numbers(out, entry->ndim, piece->sizes);
    }
}

static void put_entry(struct buffer *out, const struct metadata_entry *entry, bool has_paths)
{
    unsigned flags = (entry->is_tensor ? FOOTER_TENSOR : 0u) |
                     (entry->requires_grad ? FOOTER_REQUIRES_GRAD : 0u);
    put_text(out, entry->name);
    if (has_paths)
        put_path(out, entry);
    buffer_append_u8(out, (uint8_t)flags);
    if (entry->is_tensor) {
        buffer_append_u8(out, (uint8_t)entry->dtype);
        buffer_append_u8(out, (uint8_t)entry->ndim);
        put_numbers(out, entry->ndim, entry->global_shape);
    }
    buffer_append_varint(out, entry->piece_count);
    for (size_t i = 0; i < entry->piece_count; i++)
        put_piece(out, entry, &entry->pieces[i]);
}

dcp_status footer_encode(struct buffer *out, const char *save_id, uint64_t content_length,
                         uint32_t block_size, const uint64_t *pages, size_t page_count,
                         const struct metadata *contents)
{
    RETURN_IF_ERROR(check_contents(save_id, content_length, block_size, page_count, contents));
    size_t start = out->size;
    put_text(out, save_id);
    for (size_t i = 0; i < page_count; i++)
        buffer_append_u64(out, pages[i]);
    put_text(out, contents->files[0]);
    buffer_append_u8(out, contents->has_paths ? FOOTER_HAS_PATHS : 0);
    buffer_append_varint(out, contents->count);
    for (size_t i = 0; i < contents->count; i++)
        put_entry(out, &contents->entries[i], contents->has_paths);

    uint64_t body_size = out->size - start;
    buffer_append_u64(out, content_length);
    buffer_append_u64(out, body_size);
    buffer_append_u32(out, FOOTER_VERSION);
    buffer_append_u32(out, block_size);
    RETURN_IF_ERROR(buffer_status(out));
    buffer_append_u64(out, xxh3_64(out->data + start, out->size - start));
    buffer_append(out, FOOTER_MAGIC, FOOTER_MAGIC_SIZE);
    if (out->size - start > FOOTER_SIZE_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "the footer of \"%s\" has %zu bytes, expected at most %u",
                             contents->files[0], out->size - start, FOOTER_SIZE_MAX);
    return buffer_status(out);
}
