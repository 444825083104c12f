/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/shard/checked_source.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/stream_copy.h"
#include "storage/shard/read_batch.h"

/* What is visited at a time where it is in memory: it stays in a core's cache until it has been
 * copied. */
#define VISIT_SIZE ((size_t)128 << 10)

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

/* Whole blocks of the file; more blocks follow up to `end`. */
static dcp_status check_blocks(struct checked_source *checked, uint64_t position,
                               const unsigned char *bytes, size_t size, uint64_t end)
{
    struct shard_file *file = checked->file;
    uint64_t stop = position + size;
    uint64_t last = (end - 1) / file->block_size + 1;
    while (position < stop) {
        uint64_t index = position / file->block_size, sum;
        size_t taken = (size_t)(block_end(file, index) - position);
        RETURN_IF_ERROR(shard_sums_find(file, &checked->sums, index, last, &sum));
        uint64_t computed = xxh3_64(bytes, taken);
        if (computed != sum)
            return dcp_error_set(DCP_ERR_CHECKSUM,
                                 "block %" PRIu64 " at offset %" PRIu64 " has XXH3 %016" PRIx64
                                 ", expected %016" PRIx64,
                                 index, position, computed, sum);
        bytes += taken;
        position += taken;
    }
    return DCP_OK;
}

/* Continues the record's CRC over bytes that were read. Bytes that are read again are skipped; a
 * gap ends the watch. */
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
    checked->passed = true;
    if (checked->sum) {
        *checked->sum = (struct shard_part_sum){.known = true,
                                                .crc = checked->crc,
                                                .size = checked->record_end - checked->record_start,
                                                .expected = checked->stored_crc,
                                                .place = checked->place};
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
    if (checked->widened)
        RETURN_IF_ERROR(check_blocks(checked, position, bytes, size, checked->straight_end));
    else
        RETURN_IF_ERROR(crc_piece(checked, position, bytes, size));
    return checked->take ? checked->take(checked->taking, bytes, size) : DCP_OK;
}

/* Passes over bytes in memory, and copies them to `to`, unless that is NULL. */
static dcp_status pass_over(struct checked_source *checked, uint64_t position,
                            const unsigned char *bytes, size_t size, unsigned char *to)
{
    for (size_t done = 0, step; done < size; done += step) {
        step = size - done < VISIT_SIZE ? size - done : VISIT_SIZE;
        RETURN_IF_ERROR(check_piece(checked, position + done, bytes + done, step));
        if (to)
            stream_copy(to + done, bytes + done, step);
    }
    return DCP_OK;
}

dcp_status checked_source_pass(struct checked_source *checked, uint64_t position,
                               const unsigned char *bytes, size_t size)
{
    checked->straight_end = position + size;
    return pass_over(checked, position, bytes, size, NULL);
}

/* From the batch, if it has all of them. */
static dcp_status read_straight(struct checked_source *checked, uint64_t position,
                                unsigned char *bytes, size_t size)
{
    const unsigned char *found;
    RETURN_IF_ERROR(read_batch_find(checked->batch, checked->file, position, size, &found));
    if (found)
        return pass_over(checked, position, found, size, bytes);
    return shard_file_read_ahead(checked->file, bytes, size, position, check_piece, checked,
                                 checked->next);
}

/* The same, without a look at them. */
static dcp_status get_bytes(struct checked_source *checked, uint64_t position, unsigned char *bytes,
                            size_t size)
{
    const unsigned char *found;
    RETURN_IF_ERROR(read_batch_find(checked->batch, checked->file, position, size, &found));
    if (!found) {
        checked->held_bytes += size;
        return storage_file_read(&checked->file->file, bytes, size, position);
    }
    memcpy(bytes, found, size);
    return DCP_OK;
}

/* Reads the blocks from `start` to `end`, unless they are held already. */
static dcp_status hold_blocks(struct checked_source *checked, uint64_t start, uint64_t end)
{
    size_t size = (size_t)(end - start);
    if (size > checked->held_room) {
        memory_release(checked->held);
        checked->held_size = checked->held_room = 0;
        checked->held = memory_allocate(size);
        if (!checked->held)
            return error_no_memory(size, "blocks of a file");
        checked->held_room = size;
    }
    checked->held_size = 0;
    checked->held_start = start;
    RETURN_IF_ERROR(get_bytes(checked, start, checked->held, size));
    RETURN_IF_ERROR(check_blocks(checked, start, checked->held, size, end));
    checked->held_size = size;
    return DCP_OK;
}

/* The blocks of a range, from its beginning: all of them if they are few, else the first. Blocks
 * that are held are not read again. */
static dcp_status hold_range(struct checked_source *checked, uint64_t position, uint64_t end)
{
    const struct shard_file *file = checked->file;
    uint64_t first = position / file->block_size;
    uint64_t start = first * file->block_size, stop = block_end(file, (end - 1) / file->block_size);
    if (stop - start > CHECKED_SOURCE_HELD)
        stop = block_end(file, first);
    return hold_blocks(checked, start, stop);
}

static bool is_held(const struct checked_source *checked, uint64_t position)
{
    return position >= checked->held_start && position - checked->held_start < checked->held_size;
}

/* To their place, if they have one. */
static dcp_status copy_held(struct checked_source *checked, uint64_t position, unsigned char *place,
                            size_t size)
{
    const unsigned char *bytes = checked->held + (position - checked->held_start);
    if (checked->take)
        RETURN_IF_ERROR(checked->take(checked->taking, bytes, size));
    else
        memcpy(place, bytes, size);
    return progress_part_add(&checked->part, size);
}

/* Whole blocks are read straight into the destination; parts of blocks and small ranges are
 * copied from the held blocks. */
static dcp_status read_blocks(struct checked_source *checked, uint64_t position,
                              unsigned char *bytes, size_t size)
{
    struct shard_file *file = checked->file;
    uint64_t start = position, end = position + size;
    uint64_t last = end == file->content_length ? end : end - end % file->block_size;
    if (last != end && last > position && last - position >= CHECKED_SOURCE_HELD && !checked->batch)
        shard_file_expect(file, &checked->ending, last,
                          (size_t)(block_end(file, last / file->block_size) - last));
    while (position < end) {
        uint64_t stop = end;
        unsigned char *place = checked->take ? NULL : bytes + (position - start);
        if (is_held(checked, position)) {
            uint64_t within = position - checked->held_start;
            if (checked->held_size - within < end - position)
                stop = position + checked->held_size - within;
            RETURN_IF_ERROR(copy_held(checked, position, place, (size_t)(stop - position)));
        } else if (position % file->block_size == 0 && position < last) {
            stop = checked->straight_end = last;
            RETURN_IF_ERROR(read_straight(checked, position, place, (size_t)(stop - position)));
        } else {
            RETURN_IF_ERROR(hold_range(checked, position, end));
            continue;
        }
        position = stop;
    }
    return DCP_OK;
}

static dcp_status read_checked(void *context, uint64_t offset, void *bytes, size_t size)
{
    struct checked_source *checked = context;
    uint64_t position = checked->offset + offset;
    if (!checked->widened)
        return read_straight(checked, position, bytes, size);
    if (position + size > checked->file->content_length)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "%zu bytes expected at %" PRIu64 ", but the content ends at %" PRIu64,
                             size, position, checked->file->content_length);
    return read_blocks(checked, position, bytes, size);
}

dcp_status checked_source_give(struct checked_source *checked, const struct byte_source *source,
                               uint64_t offset, size_t size, byte_taker take, void *taking)
{
    checked->take = take;
    checked->taking = taking;
    dcp_status status = byte_source_read(source, offset, NULL, size);
    checked->take = NULL;
    return status;
}

/* A few blocks, to be copied from there. Those that are held already are not read again. */
static dcp_status hold_checked(void *context, uint64_t offset, size_t size, const void **held)
{
    struct checked_source *checked = context;
    const struct shard_file *file = checked->file;
    uint64_t position = checked->offset + offset, end = position + size;
    *held = NULL;
    if (!checked->widened || size == 0 || end > file->content_length || is_held(checked, position))
        return DCP_OK;
    uint64_t start = position - position % file->block_size;
    uint64_t stop = block_end(file, (end - 1) / file->block_size);
    if (stop - start > CHECKED_SOURCE_HELD)
        return DCP_OK;
    RETURN_IF_ERROR(hold_blocks(checked, start, stop));
    *held = checked->held + (position - start);
    return progress_part_add(&checked->part, size);
}

static void expect_range(void *context, uint64_t offset, size_t size)
{
    struct checked_source *checked = context;
    if (!checked->batch)
        shard_file_expect(checked->file, &checked->nearby, checked->offset + offset, size);
}

void checked_source_open(struct checked_source *checked, struct shard_file *file, uint64_t offset,
                         uint64_t length, struct byte_source *source)
{
    *checked = (struct checked_source){.file = file, .offset = offset};
    checked->nearby.start = checked->ending.start = UINT64_MAX;
    *source = (struct byte_source){.read = read_checked,
                                   .hold = hold_checked,
                                   .expect = expect_range,
                                   .context = checked,
                                   .size = length,
                                   .place = offset};
}

void checked_source_widen(struct checked_source *checked, struct byte_source *source)
{
    if (checked->file->footer != FOOTER_GOOD)
        return;
    checked->widened = true;
    source->grain = checked->file->block_size;
}

void checked_source_watch(struct checked_source *checked, uint64_t offset, uint64_t length,
                          uint32_t crc)
{
    checked->watching = length > 0;
    checked->passed = length == 0;
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
    if (checked->held_bytes > 0)
        shard_file_count(checked->file, checked->held_bytes);
    shard_sums_close(&checked->sums);
    memory_release(checked->held);
}
