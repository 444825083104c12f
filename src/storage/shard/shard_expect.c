/* SPDX-License-Identifier: BSD-3-Clause */
/* What the page cache has of a file, and announcing what will be read of the rest. */
#include "base/error.h"
#include "base/memory.h"
#include "storage/shard/shard_file.h"

/* Bytes that one query of the page cache covers. */
#define GROUP ((uint64_t)8 << 20)

/* Whether the page cache has the group from `start` on. If it had, that is not asked again, until
 * another group takes its place: a range is read in parts, by several threads, and what has been
 * evicted since is only read more slowly. */
static bool has_group(struct shard_file *file, uint64_t start)
{
    uint64_t left = shard_file_size(file) - start, size = left < GROUP ? left : GROUP;
    atomic_uint_fast64_t *known = &file->cached[start / GROUP % SHARD_CACHED];
    if (atomic_load_explicit(known, memory_order_relaxed) == start + size)
        return true;
    if (!storage_file_is_cached(&file->file, start, (size_t)size))
        return false;
    atomic_store_explicit(known, start + size, memory_order_relaxed);
    return true;
}

bool shard_file_is_cached(struct shard_file *file, struct cached_group *group, uint64_t position)
{
    uint64_t start = position / GROUP * GROUP;
    if (!storage_file_knows_cache(&file->file) || start >= shard_file_size(file))
        return true;
    if (start != group->start) {
        group->start = start;
        group->cached = has_group(file, start);
    }
    return group->cached;
}

bool shard_file_bypasses_cache(struct shard_file *file, struct cached_group *group,
                               uint64_t position, bool demanded)
{
    return storage_file_wants_alignment(&file->file) &&
           (demanded || !shard_file_is_cached(file, group, position));
}

bool shard_reader_bypasses_cache(struct shard_reader *reader, uint32_t file, uint64_t offset)
{
    struct cached_group group = {.start = UINT64_MAX};
    struct shard_file *opened;
    if (shard_file_acquire(reader, file, DCP_VERIFY_NONE, &opened) != DCP_OK) {
        error_clear();
        return false;
    }
    bool bypasses = shard_file_bypasses_cache(opened, &group, offset, false);
    shard_file_release(reader, opened);
    return bypasses;
}

void shard_file_expect(struct shard_file *file, struct cached_group *group, uint64_t offset,
                       size_t size)
{
    if (!shard_file_is_cached(file, group, offset))
        storage_file_expect(&file->file, offset, size);
}

/* The blocks that a range lies in, as far as there are blocks. */
static void expect_blocks(struct shard_file *file, struct cached_group *group, uint64_t start,
                          uint64_t end)
{
    if (file->footer == FOOTER_GOOD) {
        uint64_t last = (end - 1) / file->block_size;
        start -= start % file->block_size;
        end = last < file->block_count - 1 ? (last + 1) * file->block_size : file->content_length;
    }
    shard_file_expect(file, group, start, (size_t)(end - start));
}

void shard_file_expect_stream(struct shard_file *file, uint64_t offset, uint64_t length)
{
    struct cached_group group = {.start = UINT64_MAX};
    if (length < SHARD_STREAM_HEAD + SHARD_STREAM_TAIL || offset > file->content_length ||
        length > file->content_length - offset)
        return;
    expect_blocks(file, &group, offset, offset + SHARD_STREAM_HEAD);
    expect_blocks(file, &group, offset + length - SHARD_STREAM_TAIL, offset + length);
}

void shard_file_expect_piece(struct shard_file *file, const struct metadata_piece *piece,
                             dcp_verification verification)
{
    if (!metadata_is_in_stream(piece))
        return;
    if (piece->length >= SHARD_LARGE)
        shard_file_expect_stream(file, piece->offset, piece->length);
    if (verification != DCP_VERIFY_NONE)
        shard_sums_expect(file, piece->offset, piece->length);
}

void shard_file_expect_group(struct shard_file *file, uint64_t start, uint64_t end)
{
    uint64_t size = shard_file_size(file);
    struct cached_group own = {.start = UINT64_MAX};
    if (end - start < SHARD_LARGE) { /* what it is near to may be read around the page cache */
        shard_file_expect(file, &own, start, (size_t)(end - start));
        return;
    }
    for (uint64_t at = start / GROUP * GROUP; at < end && at < size; at += GROUP) {
        struct cached_group group = {.start = UINT64_MAX};
        shard_file_expect(file, &group, at, (size_t)(size - at < GROUP ? size - at : GROUP));
    }
}
