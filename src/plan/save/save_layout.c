/* SPDX-License-Identifier: BSD-3-Clause */
/* Assigns each stream a file of its rank, and an offset in it.
 *
 * A file holds objects, then small tensors, then large ones. The data of a large tensor begins at a
 * page of the file, so there is a gap before its stream. Tiny tensors fill these gaps as far as
 * they fit; the others come last. Less than a page per large tensor remains unused. */
#include "plan/save/save_layout.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"

enum stream_class { CLASS_OBJECT, CLASS_SMALL, CLASS_LARGE, CLASS_TINY, CLASS_COUNT };

/* State while a layout is made. */
struct assignment {
    struct rank_layout *layout;
    uint32_t *sorted; /* streams by file, class and number */
    size_t *buckets;  /* where each file's classes begin there, and the end */
    uint64_t *loads;  /* bytes assigned to each file */
};

static enum stream_class class_of(const struct layout_stream *stream)
{
    if (!stream->is_tensor)
        return CLASS_OBJECT;
    if (stream->piece.length - stream->piece.data_offset >= SAVE_PAGED_SIZE)
        return CLASS_LARGE;
    return stream->piece.length < SAVE_PAGE ? CLASS_TINY : CLASS_SMALL;
}

static size_t bucket_of(const struct layout_stream *stream)
{
    return (size_t)stream->file * CLASS_COUNT + class_of(stream);
}

static int compare_lengths(const void *left, const void *right, void *context)
{
    const struct layout_stream *streams = context;
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    if (streams[a].piece.length != streams[b].piece.length)
        return streams[a].piece.length > streams[b].piece.length ? -1 : 1;
    return a < b ? -1 : a > b;
}

static void give(struct assignment *work, struct layout_stream *stream, uint32_t file)
{
    stream->file = file;
    work->loads[file] += stream->piece.length;
}

/* Deals out objects in turn, and tensors, the largest first, to the file with the fewest bytes. */
static void deal_files(struct assignment *work)
{
    struct rank_layout *layout = work->layout;
    uint32_t *tensors = work->sorted;
    size_t tensor_count = 0;
    uint32_t turn = 0;
    for (size_t i = 0; i < layout->count; i++) {
        if (layout->streams[i].is_tensor)
            tensors[tensor_count++] = (uint32_t)i;
        else
            give(work, &layout->streams[i], turn++ % layout->file_count);
    }
    if (layout->file_count > 1)
        qsort_r(tensors, tensor_count, sizeof *tensors, compare_lengths, layout->streams);
    for (size_t i = 0; i < tensor_count; i++) {
        uint32_t least = 0;
        for (uint32_t file = 1; file < layout->file_count; file++)
            if (work->loads[file] < work->loads[least])
                least = file;
        give(work, &layout->streams[tensors[i]], least);
    }
}

static void sort_streams(struct assignment *work)
{
    const struct rank_layout *layout = work->layout;
    for (size_t i = 0; i < layout->count; i++)
        work->buckets[bucket_of(&layout->streams[i])]++;
    size_t end = 0;
    for (size_t i = 0; i <= (size_t)layout->file_count * CLASS_COUNT; i++) {
        end += work->buckets[i];
        work->buckets[i] = end;
    }
    for (size_t i = layout->count; i-- > 0;)
        work->sorted[--work->buckets[bucket_of(&layout->streams[i])]] = (uint32_t)i;
}

static uint64_t align_up(uint64_t position, uint64_t alignment)
{
    return (position + alignment - 1) / alignment * alignment;
}

/* The first place at or after position where the stream can begin. */
static uint64_t find_start(const struct layout_stream *stream, uint64_t position)
{
    enum stream_class class = class_of(stream);
    if (class == CLASS_OBJECT)
        return position;
    uint64_t alignment = class == CLASS_LARGE ? SAVE_PAGE : SAVE_ALIGNMENT;
    uint64_t data = align_up(position + stream->piece.data_offset, alignment);
    return data - stream->piece.data_offset;
}

/* Places tiny streams from position on, as long as they end at limit or before. Returns where the
 * last one ends. */
static uint64_t place_tiny(struct assignment *work, size_t *tiny, size_t tiny_end,
                           uint64_t position, uint64_t limit, uint32_t **placed)
{
    for (; *tiny < tiny_end; ++*tiny) {
        struct layout_stream *stream = &work->layout->streams[work->sorted[*tiny]];
        uint64_t start = find_start(stream, position);
        if (start + stream->piece.length > limit)
            break;
        stream->offset = start;
        position = start + stream->piece.length;
        *(*placed)++ = work->sorted[*tiny];
    }
    return position;
}

static void place_file(struct assignment *work, uint32_t file, uint32_t **placed)
{
    const size_t *buckets = &work->buckets[(size_t)file * CLASS_COUNT];
    size_t tiny = buckets[CLASS_TINY], tiny_end = buckets[CLASS_COUNT];
    uint64_t position = 0;
    for (size_t i = buckets[CLASS_OBJECT]; i < buckets[CLASS_TINY]; i++) {
        struct layout_stream *stream = &work->layout->streams[work->sorted[i]];
        stream->offset = find_start(stream, position);
        if (i >= buckets[CLASS_LARGE])
            place_tiny(work, &tiny, tiny_end, position, stream->offset, placed);
        position = stream->offset + stream->piece.length;
        *(*placed)++ = work->sorted[i];
    }
    place_tiny(work, &tiny, tiny_end, position, UINT64_MAX, placed);
}

dcp_status layout_assign(struct rank_layout *layout, const struct save_plan_options *options)
{
    bool per_item = options->files == DCP_FILE_PER_ITEM;
    uint32_t threads = options->thread_count != 0 ? options->thread_count : 1;
    layout->file_count = per_item ? (uint32_t)layout->count : threads;
    size_t bucket_count = (size_t)layout->file_count * CLASS_COUNT + 1;
    struct assignment work = {
        .layout = layout,
        .sorted = memory_allocate_array(layout->count, sizeof *work.sorted),
        .buckets = memory_allocate_zeroed(bucket_count, sizeof *work.buckets),
        .loads = memory_allocate_zeroed(layout->file_count, sizeof *work.loads),
    };
    dcp_status status = DCP_OK;
    if (work.sorted == NULL || work.buckets == NULL || work.loads == NULL) {
        status = error_no_memory(bucket_count * sizeof *work.buckets, "files of a rank");
        goto done;
    }
    if (per_item)
        for (size_t i = 0; i < layout->count; i++)
            layout->streams[i].file = (uint32_t)i;
    else
        deal_files(&work);
    sort_streams(&work);
    uint32_t *placed = layout->sequence;
    for (uint32_t file = 0; file < layout->file_count; file++)
        place_file(&work, file, &placed);
done:
    memory_release(work.loads);
    memory_release(work.buckets);
    memory_release(work.sorted);
    return status;
}
