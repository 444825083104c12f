/* SPDX-License-Identifier: BSD-3-Clause */
#include "device/staging_pieces.h"

#include <string.h>

#include "base/memory.h"
#include "base/stream_copy.h"
#include "device/device_copy.h"
#include "state/box.h"
#include "state/box_blocks.h"
#include "state/copy.h"
#include "state/device_memory.h"

/* From this size on, copies are aligned as in their file. */
#define PHASED_SIZE ((size_t)64 << 10)
#define ALIGNMENT   ((uint64_t)64)
/* Bytes that are copied at a time, unless a limit is small. */
#define PIECE_SIZE ((size_t)4 << 20)
/* From this size on, a piece is more than a core's cache should give up its contents for. */
#define STREAMED ((size_t)256 << 10)

static uint64_t source_volume(const struct staging_source *source)
{
    return (uint64_t)box_volume((struct box){source->ndim, source->sizes, source->sizes});
}

size_t staging_piece_most(uint64_t limit)
{
    return limit > 0 && limit / 4 < PIECE_SIZE ? (size_t)limit / 4 : PIECE_SIZE;
}

static size_t count_blocks(const struct staging_source *source, size_t most)
{
    struct box_blocks blocks;
    struct box_storage block;
    size_t count = 0;
    box_blocks_start_bounded(&blocks, source->ndim, source->sizes,
                             (int64_t)(most / source->element_size));
    while (box_blocks_next(&blocks, &block))
        count++;
    return count;
}

/* Where a source's copy begins. */
static uint64_t place_source(uint64_t end, uint64_t bytes, size_t phase)
{
    if (bytes < PHASED_SIZE)
        return (end + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
    uint64_t place = (end & ~(uint64_t)(MEMORY_PAGE - 1)) + phase;
    return place < end ? place + MEMORY_PAGE : place;
}

static void split_source(struct staging_pieces *pieces, const struct staging_source *source,
                         size_t index, size_t most)
{
    struct staged_source *kept = &pieces->sources[index];
    uint64_t position = 0, at = place_source(pieces->pool_size, kept->bytes, source->phase);
    struct box_blocks blocks;
    struct box_storage block;
    size_t ndim = (size_t)source->ndim;
    box_blocks_start_bounded(&blocks, source->ndim, source->sizes,
                             (int64_t)(most / source->element_size));
    while (box_blocks_next(&blocks, &block)) {
        struct staging_piece *piece = &pieces->pieces[pieces->count++];
        int64_t *sizes = pieces->numbers + pieces->number_count;
        int64_t start = 0;
        pieces->number_count += ndim;
        if (ndim > 0)
            memcpy(sizes, block.sizes, ndim * sizeof *sizes);
        for (size_t i = 0; i < ndim; i++)
            start += block.offsets[i] * kept->strides[i];
        size_t bytes = (size_t)box_volume(box_of(source->ndim, &block)) * source->element_size;
        *piece = (struct staging_piece){
            .source = index,
            .from = (const unsigned char *)source->from + start * (int64_t)source->element_size,
            .sizes = sizes,
            .bytes = bytes,
            .position = position,
            .at = at + position,
        };
        position += bytes;
        pieces->largest = bytes > pieces->largest ? bytes : pieces->largest;
    }
    pieces->pool_size = at + position;
}

static void keep_source(struct staging_pieces *pieces, const struct staging_source *source,
                        size_t index, size_t most)
{
    struct staged_source *kept = &pieces->sources[index];
    size_t ndim = (size_t)source->ndim;
    *kept = (struct staged_source){
        .name = source->name,
        .device = source->device,
        .ndim = source->ndim,
        .element_size = source->element_size,
        .bytes = source_volume(source) * source->element_size,
        .first = pieces->count,
    };
    if (kept->bytes == 0)
        return;
    int64_t *strides = pieces->numbers + pieces->number_count;
    pieces->number_count += ndim;
    if (ndim > 0)
        memcpy(strides, source->strides, ndim * sizeof *strides);
    kept->strides = strides;
    pieces->bytes += kept->bytes;
    split_source(pieces, source, index, most);
    kept->count = pieces->count - kept->first;
}

void staging_pieces_measure(struct staging_pieces *pieces, const struct staging_source *sources,
                            size_t count, size_t most)
{
    *pieces = (struct staging_pieces){.source_count = count};
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = source_volume(&sources[i]) * sources[i].element_size;
        size_t blocks = bytes > 0 ? count_blocks(&sources[i], most) : 0;
        if (bytes == 0)
            continue;
        pieces->count += blocks;
        pieces->number_count += (1 + blocks) * (size_t)sources[i].ndim;
        pieces->bytes += bytes;
        pieces->pool_size = place_source(pieces->pool_size, bytes, sources[i].phase) + bytes;
    }
}

uint64_t staging_pieces_memory(const struct staging_pieces *pieces)
{
    return pieces->source_count * sizeof *pieces->sources + pieces->count * sizeof *pieces->pieces +
           pieces->number_count * sizeof *pieces->numbers;
}

dcp_status staging_pieces_make(struct staging_pieces *pieces, const struct staging_source *sources,
                               size_t count, size_t most)
{
    struct staging_pieces measured;
    staging_pieces_measure(&measured, sources, count, most);
    *pieces = (struct staging_pieces){.source_count = count};
    pieces->sources = memory_allocate_zeroed(count, sizeof *pieces->sources);
    pieces->pieces = memory_allocate_zeroed(measured.count, sizeof *pieces->pieces);
    pieces->numbers = memory_allocate_array(measured.number_count, sizeof *pieces->numbers);
    if (!pieces->sources || !pieces->pieces || !pieces->numbers)
        return error_no_memory((size_t)staging_pieces_memory(&measured), "staging");
    for (size_t i = 0; i < count; i++)
        keep_source(pieces, &sources[i], i, most);
    return DCP_OK;
}

void staging_pieces_free(struct staging_pieces *pieces)
{
    memory_release(pieces->numbers);
    memory_release(pieces->pieces);
    memory_release(pieces->sources);
}

/* What is small may be used soon. */
static void copy_dense(void *to, const void *from, size_t size)
{
    if (size < STREAMED)
        memcpy(to, from, size);
    else
        stream_copy(to, from, size);
}

dcp_status staging_piece_copy(const struct staging_pieces *pieces,
                              const struct staging_piece *piece, const dcp_device *device,
                              bool start, void *to)
{
    const struct staged_source *source = &pieces->sources[piece->source];
    int64_t dense[DCP_MAX_DIMS];
    shape_strides(source->ndim, piece->sizes, dense);
    if (device_is_host(device) && copy_is_dense(source->ndim, piece->sizes, source->strides)) {
        copy_dense(to, piece->from, piece->bytes);
        return DCP_OK;
    }
    if (device_is_host(device)) {
        copy_strided(source->ndim, piece->sizes, source->element_size, piece->from, source->strides,
                     to, dense);
        return DCP_OK;
    }
    dcp_status status =
        start ? device_start_to_host(device, source->ndim, piece->sizes, source->element_size,
                                     piece->from, source->strides, to, dense)
              : device_copy_to_host(device, source->ndim, piece->sizes, source->element_size,
                                    piece->from, source->strides, to, dense);
    return status == DCP_OK ? DCP_OK : error_prefix(status, "%s", source->name);
}
