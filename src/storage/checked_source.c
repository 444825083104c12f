/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/checked_source.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

/* Bytes that are read and then checksummed at a time: stay in a core's cache in between. */
#define PIECE ((size_t)256 << 10)
/* From here on it is worth reading ahead. */
#define LARGE ((size_t)8 << 20)

dcp_status checked_crc_error(uint64_t offset, uint32_t stored, uint32_t computed)
{
    return dcp_error_set(DCP_ERR_CHECKSUM,
                         "the data at offset %" PRIu64 " has CRC-32 %08" PRIx32
                         ", expected %08" PRIx32,
                         offset, computed, stored);
}

/* End of block `index` in the file; the last one ends with the content. */
static uint64_t block_end(const struct shard_file *file, uint64_t index)
{
    uint64_t start = index * file->block_size;
    return file->content_length - start < file->block_size ? file->content_length
                                                           : start + file->block_size;
}

static dcp_status check_block(const struct checked_source *checked, uint64_t index,
                              uint64_t computed)
{
    const struct shard_file *file = checked->file;
    if (computed == file->blocks[index])
        return DCP_OK;
    return dcp_error_set(DCP_ERR_CHECKSUM,
                         "block %" PRIu64 " at offset %" PRIu64 " has XXH3 %016" PRIx64
                         ", expected %016" PRIx64,
                         index, index * file->block_size, computed, file->blocks[index]);
}

/* Carries the running block on over bytes that were read. */
static dcp_status hash_piece(struct checked_source *checked, uint64_t position,
                             const unsigned char *bytes, size_t size)
{
    const struct shard_file *file = checked->file;
    if (position != checked->hash_position)
        checked->hash_valid = false;
    uint64_t end = position + size < file->content_length ? position + size : file->content_length;
    while (position < end) {
        uint64_t index = position / file->block_size;
        uint64_t stop = block_end(file, index) < end ? block_end(file, index) : end;
        if (position == index * file->block_size) {
            checked->hash_valid = true;
            xxh3_stream_reset(checked->hash);
        }
        if (checked->hash_valid)
            xxh3_stream_update(checked->hash, bytes, (size_t)(stop - position));
        bytes += stop - position;
        position = stop;
        if (checked->hash_valid && position == block_end(file, index)) {
            checked->hash_valid = false;
            RETURN_IF_ERROR(check_block(checked, index, xxh3_stream_digest(checked->hash)));
        }
    }
    checked->hash_position = position;
    return DCP_OK;
}

/* Carries the record's CRC on over bytes that were read. Reading some of it again does no harm,
 * leaving some of it out ends the watch. */
static dcp_status crc_piece(struct checked_source *checked, uint64_t position,
                            const unsigned char *bytes, size_t size)
{
    if (!checked->watching || position + size <= checked->record_position)
        return DCP_OK;
    if (position > checked->record_position) {
        checked->watching = false;
        return DCP_OK;
    }
    uint64_t skipped = checked->record_position - position;
    uint64_t left = checked->record_end - checked->record_position;
    uint64_t taken = size - skipped < left ? size - skipped : left;
    checked->crc = crc32_update(checked->crc, bytes + skipped, (size_t)taken);
    checked->record_position += taken;
    if (checked->record_position < checked->record_end)
        return DCP_OK;
    checked->watching = false;
    if (checked->crc == checked->stored_crc)
        return DCP_OK;
    return checked_crc_error(checked->record_start, checked->stored_crc, checked->crc);
}

static dcp_status check_piece(void *context, uint64_t position, const unsigned char *bytes,
                              size_t size)
{
    struct checked_source *checked = context;
    RETURN_IF_ERROR(progress_part_add(&checked->part, size));
    if (checked->hash)
        RETURN_IF_ERROR(hash_piece(checked, position, bytes, size));
    return crc_piece(checked, position, bytes, size);
}

static dcp_status read_pieces(struct checked_source *checked, uint64_t position,
                              unsigned char *bytes, size_t size)
{
    if (size >= LARGE)
        return shard_file_read_ahead(checked->file, bytes, size, position, check_piece, checked);
    while (size > 0) {
        size_t piece = size < PIECE ? size : PIECE;
        RETURN_IF_ERROR(shard_file_read(checked->file, bytes, piece, position));
        RETURN_IF_ERROR(check_piece(checked, position, bytes, piece));
        position += piece;
        bytes += piece;
        size -= piece;
    }
    return DCP_OK;
}

/* Reads a block into memory of its size and checks it. */
static dcp_status load_block(struct checked_source *checked, uint64_t index, unsigned char *bytes)
{
    uint64_t start = index * checked->file->block_size;
    size_t size = (size_t)(block_end(checked->file, index) - start);
    RETURN_IF_ERROR(shard_file_read(checked->file, bytes, size, start));
    return check_block(checked, index, xxh3_64(bytes, size));
}

/* Whole blocks go straight to where they are wanted, parts of blocks through the block at hand. */
static dcp_status read_blocks(struct checked_source *checked, uint64_t position,
                              unsigned char *bytes, size_t size)
{
    const struct shard_file *file = checked->file;
    uint64_t end = position + size;
    while (position < end) {
        uint64_t index = position / file->block_size;
        uint64_t start = index * file->block_size;
        uint64_t stop = block_end(file, index) < end ? block_end(file, index) : end;
        size_t taken = (size_t)(stop - position);
        if (position == start && stop == block_end(file, index)) {
            RETURN_IF_ERROR(load_block(checked, index, bytes));
        } else {
            if (checked->block_index != index) {
                checked->block_index = UINT64_MAX;
                RETURN_IF_ERROR(load_block(checked, index, checked->block));
                checked->block_index = index;
            }
            memcpy(bytes, checked->block + (position - start), taken);
        }
        RETURN_IF_ERROR(progress_part_add(&checked->part, taken));
        RETURN_IF_ERROR(crc_piece(checked, position, bytes, taken));
        position = stop;
        bytes += taken;
    }
    return DCP_OK;
}

static dcp_status read_checked(void *context, uint64_t offset, void *bytes, size_t size)
{
    struct checked_source *checked = context;
    uint64_t position = checked->offset + offset;
    if (checked->block && position + size <= checked->file->content_length)
        return read_blocks(checked, position, bytes, size);
    return read_pieces(checked, position, bytes, size);
}

dcp_status checked_source_open(struct checked_source *checked, struct shard_file *file,
                               uint64_t offset, uint64_t length, dcp_verification verification,
                               struct byte_source *source)
{
    *checked = (struct checked_source){
        .file = file, .offset = offset, .hash_position = UINT64_MAX, .block_index = UINT64_MAX};
    *source = (struct byte_source){.read = read_checked, .context = checked, .size = length};
    if (verification == DCP_VERIFY_NONE || file->footer != FOOTER_GOOD)
        return DCP_OK;
    if (verification == DCP_VERIFY_WIDEN) {
        checked->block = memory_allocate(file->block_size);
        return checked->block ? DCP_OK : error_no_memory(file->block_size, "a block");
    }
    checked->hash = xxh3_stream_new();
    return checked->hash ? DCP_OK : error_no_memory(1024, "a running checksum");
}

void checked_source_watch(struct checked_source *checked, uint64_t offset, uint64_t length,
                          uint32_t crc)
{
    checked->watching = length > 0;
    checked->record_start = checked->offset + offset;
    checked->record_position = checked->record_start;
    checked->record_end = checked->record_start + length;
    checked->crc = 0;
    checked->stored_crc = crc;
}

void checked_source_close(struct checked_source *checked)
{
    xxh3_stream_free(checked->hash);
    memory_release(checked->block);
}
