/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/checked_source.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

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
        bool begins = position == index * file->block_size, ends = stop == block_end(file, index);
        if (begins && ends) {
            RETURN_IF_ERROR(check_block(checked, index, xxh3_64(bytes, (size_t)(stop - position))));
        } else {
            if (begins)
                xxh3_stream_reset(checked->hash);
            checked->hash_valid = checked->hash_valid || begins;
            if (checked->hash_valid)
                xxh3_stream_update(checked->hash, bytes, (size_t)(stop - position));
            if (checked->hash_valid && ends)
                RETURN_IF_ERROR(check_block(checked, index, xxh3_stream_digest(checked->hash)));
        }
        checked->hash_valid = checked->hash_valid && !ends;
        bytes += stop - position;
        position = stop;
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
    if (checked->sum) {
        *checked->sum =
            (struct shard_part_sum){true, checked->crc, checked->record_end - checked->record_start,
                                    checked->stored_crc, checked->place};
        return DCP_OK;
    }
    if (checked->parts)
        return shard_parts_add(checked->parts, checked->part_index, checked->crc,
                               checked->record_end - checked->record_start, checked->place,
                               checked->stored_crc);
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

/* Reads a block into memory of its size and checks it. */
static dcp_status load_block(struct checked_source *checked, uint64_t index, unsigned char *bytes)
{
    uint64_t start = index * checked->file->block_size;
    size_t size = (size_t)(block_end(checked->file, index) - start);
    RETURN_IF_ERROR(shard_file_read(checked->file, bytes, size, start));
    return check_block(checked, index, xxh3_64(bytes, size));
}

/* A part of a block, through the block at hand. */
static dcp_status read_in_block(struct checked_source *checked, uint64_t position,
                                unsigned char *bytes, size_t size)
{
    uint64_t index = position / checked->file->block_size;
    if (checked->block_index != index) {
        checked->block_index = UINT64_MAX;
        RETURN_IF_ERROR(load_block(checked, index, checked->block));
        checked->block_index = index;
    }
    memcpy(bytes, checked->block + (position - index * checked->file->block_size), size);
    return progress_part_add(&checked->part, size);
}

/* Whole blocks go straight to where they are wanted. */
static dcp_status read_blocks(struct checked_source *checked, uint64_t position,
                              unsigned char *bytes, size_t size)
{
    const struct shard_file *file = checked->file;
    uint64_t end = position + size;
    uint64_t last = end == file->content_length ? end : end / file->block_size * file->block_size;
    if (last != end && last > position)
        shard_file_expect(checked->file, &checked->nearby, last,
                          (size_t)(block_end(file, last / file->block_size) - last));
    while (position < end) {
        uint64_t index = position / file->block_size;
        uint64_t stop = block_end(file, index) < end ? block_end(file, index) : end;
        if (position == index * file->block_size && position < last) {
            stop = last;
            RETURN_IF_ERROR(shard_file_read_ahead(checked->file, bytes, (size_t)(stop - position),
                                                  position, check_piece, checked));
        } else {
            RETURN_IF_ERROR(read_in_block(checked, position, bytes, (size_t)(stop - position)));
        }
        bytes += stop - position;
        position = stop;
    }
    return DCP_OK;
}

static dcp_status read_checked(void *context, uint64_t offset, void *bytes, size_t size)
{
    struct checked_source *checked = context;
    uint64_t position = checked->offset + offset;
    if (checked->block && position + size <= checked->file->content_length)
        return read_blocks(checked, position, bytes, size);
    return shard_file_read_ahead(checked->file, bytes, size, position, check_piece, checked);
}

static void expect_range(void *context, uint64_t offset, size_t size)
{
    struct checked_source *checked = context;
    shard_file_expect(checked->file, &checked->nearby, checked->offset + offset, size);
}

dcp_status checked_source_open(struct checked_source *checked, struct shard_file *file,
                               uint64_t offset, uint64_t length, dcp_verification verification,
                               struct byte_source *source)
{
    *checked = (struct checked_source){
        .file = file, .offset = offset, .hash_position = UINT64_MAX, .block_index = UINT64_MAX};
    checked->nearby.start = UINT64_MAX;
    *source = (struct byte_source){
        .read = read_checked, .expect = expect_range, .context = checked, .size = length};
    return verification == DCP_VERIFY_WIDEN ? checked_source_widen(checked) : DCP_OK;
}

dcp_status checked_source_hash(struct checked_source *checked)
{
    if (checked->file->footer == FOOTER_GOOD && !checked->hash)
        checked->hash = xxh3_stream_new();
    return checked->hash || checked->file->footer != FOOTER_GOOD
               ? DCP_OK
               : error_no_memory(1024, "a running checksum");
}

dcp_status checked_source_widen(struct checked_source *checked)
{
    if (checked->file->footer != FOOTER_GOOD || checked->block)
        return DCP_OK;
    checked->block = memory_allocate(checked->file->block_size);
    return checked->block ? checked_source_hash(checked)
                          : error_no_memory(checked->file->block_size, "a block");
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

void checked_source_watch_sum(struct checked_source *checked, uint64_t offset, uint64_t length,
                              struct shard_part_sum *sum, uint64_t place, uint32_t crc)
{
    checked_source_watch(checked, offset, length, crc);
    checked->sum = sum;
    checked->place = place;
}

void checked_source_watch_part(struct checked_source *checked, uint64_t offset, uint64_t length,
                               struct shard_parts *parts, size_t part, uint64_t place, uint32_t crc)
{
    checked_source_watch(checked, offset, length, crc);
    checked->parts = parts;
    checked->part_index = part;
    checked->place = place;
}

void checked_source_close(struct checked_source *checked)
{
    xxh3_stream_free(checked->hash);
    memory_release(checked->block);
}
