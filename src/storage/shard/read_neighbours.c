/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/shard/read_neighbours.h"

#include "base/checked.h"
#include "state/box.h"
#include "storage/shard/stored_item.h"

/* Of a stream that is wanted in part, no more is read in vain than takes as long as another read.
 */
#define VAIN_MOST   ((uint64_t)16 << 10)
#define WINDOW_MOST SHARD_WINDOW_MOST
/* What is read in between without being wanted: hardly more than alignment leaves, or next to
 * nothing beside the whole. */
#define GAP_SIZE      ((uint64_t)512)
#define GAP_OF_WINDOW 128
/* Ranks that divide small streams do not do so evenly: one may read 1 / UNEVEN more than others. */
#define UNEVEN 4

static bool is_small_stream(const struct metadata_piece *piece)
{
    return metadata_is_in_stream(piece) && piece->length <= STORED_ITEM_SMALL;
}

static bool is_small(const struct shard_request *request)
{
    const struct metadata_piece *piece = request->piece;
    const struct box stored = {request->entry->ndim, piece->offsets, piece->sizes};
    uint64_t vain;
    if (!is_small_stream(piece) || piece->zstd)
        return is_small_stream(piece);
    uint64_t unwanted = (uint64_t)(box_volume(stored) - box_volume(request->region));
    return checked_multiply_u64(unwanted, dcp_dtype_size(request->entry->dtype), &vain) &&
           vain <= VAIN_MOST;
}

/* Bytes of streams that the requests read as neighbours. */
static uint64_t count_read(const struct shard_request *requests, size_t count)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        if (is_small(&requests[i]) && (i == 0 || requests[i].piece != requests[i - 1].piece))
            bytes += requests[i].piece->length;
    return bytes;
}

static uint64_t count_stored(const struct metadata *metadata)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < metadata->count; i++) {
        const struct metadata_entry *entry = &metadata->entries[i];
        for (size_t k = 0; entry->is_tensor && k < entry->piece_count; k++)
            bytes += is_small_stream(&entry->pieces[k]) ? entry->pieces[k].length : 0;
    }
    return bytes;
}

static bool is_direct_demanded(const struct shard_reader *reader)
{
    return reader->io & ~(uint32_t)DCP_IO_BUFFERED;
}

/* If each rank reads as many bytes as this one, some are read by several ranks. */
static bool are_shared(const struct shard_reader *reader, uint64_t bytes)
{
    if (reader->rank_count < 2 || bytes < SHARD_LARGE || is_direct_demanded(reader))
        return false;
    uint64_t share = count_stored(reader->metadata) / reader->rank_count;
    return bytes > share + share / UNEVEN;
}

struct read_neighbours read_neighbours_choose(const struct shard_reader *reader,
                                              const struct shard_request *requests, size_t count,
                                              size_t thread_count)
{
    uint64_t bytes = count_read(requests, count);
    /* Enough runs for all threads to be busy until the end. */
    uint64_t run = bytes / (4 * (uint64_t)thread_count);
    run = run < SHARD_RUN_MOST ? run : SHARD_RUN_MOST;
    if (reader->how.plain || run < WINDOW_MOST)
        run = WINDOW_MOST;
    return (struct read_neighbours){.run = run, .shared = are_shared(reader, bytes)};
}

bool read_neighbours_include(const struct read_neighbours *neighbours,
                             const struct shard_request *first, const struct shard_request *request)
{
    const struct metadata_piece *from = first->piece, *piece = request->piece;
    const struct metadata_piece *before = request[-1].piece;
    if (!is_small(request) || !is_small(request - 1) || piece->file != from->file ||
        before->offset < from->offset || piece->offset < before->offset ||
        piece->offset - from->offset > neighbours->run - STORED_ITEM_SMALL)
        return false;
    uint64_t end = before->offset + before->length, way = piece->offset - from->offset,
             gap = piece->offset > end ? piece->offset - end : 0;
    return gap <= GAP_SIZE || gap <= (way < WINDOW_MOST ? way : WINDOW_MOST) / GAP_OF_WINDOW;
}

static uint64_t end_of(const struct shard_request *request)
{
    return request->piece->offset + request->piece->length;
}

static dcp_status read_window(struct shard_reader *reader, const struct shard_request *requests,
                              size_t count, uint64_t end, dcp_verification verification,
                              const struct shard_range *next)
{
    const struct metadata_piece *first = requests[0].piece;
    struct read_window window;
    RETURN_IF_ERROR(
        read_window_open(&window, reader, first->file, first->offset, end, verification, next));
    dcp_status status = DCP_OK;
    for (size_t i = 0; status == DCP_OK && i < count; i++)
        status = shard_read_one(reader, &requests[i], verification, &window, NULL);
    read_window_close(&window);
    return status;
}

bool read_neighbours_range(const struct read_neighbours *neighbours,
                           const struct shard_request *requests, size_t count,
                           struct shard_range *range)
{
    uint64_t start = requests[0].piece->offset;
    *range = (struct shard_range){.offset = start, .size = end_of(&requests[count - 1]) - start};
    return !neighbours->shared && range->size >= SHARD_RUN_MOST / 2;
}

/* What the page cache has, or shall have for other ranks, is read in windows that stay in a core's
 * cache. */
static dcp_status choose_window(struct shard_reader *reader,
                                const struct read_neighbours *neighbours,
                                const struct shard_request *requests, size_t count,
                                dcp_verification verification, uint64_t *most)
{
    const uint32_t index = requests[0].piece->file;
    struct cached_group group = {.start = UINT64_MAX};
    struct shard_range range;
    *most = WINDOW_MOST;
    if (!read_neighbours_range(neighbours, requests, count, &range))
        return DCP_OK;
    RETURN_IF_ERROR(shard_file_acquire(reader, index, verification, &range.file));
    if (is_direct_demanded(reader) || !shard_file_is_cached(range.file, &group, range.offset))
        *most = SHARD_RUN_MOST;
    shard_file_release(reader, range.file);
    return DCP_OK;
}

dcp_status read_neighbours(struct shard_reader *reader, const struct read_neighbours *neighbours,
                           const struct shard_request *requests, size_t count,
                           dcp_verification verification, const struct shard_range *next)
{
    uint64_t most;
    RETURN_IF_ERROR(choose_window(reader, neighbours, requests, count, verification, &most));
    for (size_t i = 0, taken; i < count; i += taken) {
        uint64_t start = requests[i].piece->offset, end = start;
        for (taken = 0; i + taken < count; taken++) {
            uint64_t stop = end_of(&requests[i + taken]);
            if (taken > 0 && stop - start > most)
                break;
            end = stop > end ? stop : end;
        }
        RETURN_IF_ERROR(read_window(reader, &requests[i], taken, end, verification,
                                    i + taken == count ? next : NULL));
    }
    return DCP_OK;
}
