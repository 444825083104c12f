/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/shard/read_neighbours.h"

#include "base/checked.h"
#include "state/box.h"
#include "state/record_rest.h"
#include "storage/commit/save_id.h"
#include "storage/shard/stored_item.h"

/* Of a stream that is wanted in part, no more is read in vain than takes as long as another read.
 */
#define VAIN_MOST   ((uint64_t)16 << 10)
#define WINDOW_MOST SHARD_WINDOW_MOST
/* What one thread reads in succession through the page cache: the system reads ahead of it. */
#define RUN_MOST ((uint64_t)8 << 20)
/* What is read in between without being wanted: hardly more than alignment leaves, or next to
 * nothing beside the whole. */
#define GAP_SIZE      ((uint64_t)512)
#define GAP_OF_WINDOW 128
/* Ranks that divide tensors do not do so evenly: one may read 1 / UNEVEN more than others. */
#define UNEVEN 4

static bool is_small_stream(const struct metadata_piece *piece)
{
    return metadata_is_in_stream(piece) && piece->length <= STORED_ITEM_SMALL &&
           piece->offset <= INT64_MAX;
}

/* Whether all of its stream is read. */
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

/* Whether all of a record of a .pt file is read to check it, of which a part is wanted. */
static bool is_held(const struct shard_request *request, dcp_verification verification)
{
    const struct tensor_view *view = request->piece->view;
    return view && !request->sum && view->has_crc && verification != DCP_VERIFY_NONE &&
           view->data_length <= RECORD_REST_SMALL &&
           record_rest_pays(verification, shard_request_bytes(request), view->data_length);
}

/* Where what is read for a request lies; false: in several places, or it is large, or decompressed
 * as it is read. */
static bool find_range(const struct shard_request *request, dcp_verification verification,
                       struct shard_range *range)
{
    const struct metadata_piece *piece = request->piece;
    if (piece->zstd && !stored_item_is_whole(request->entry, piece))
        return false;
    if (is_small(request) || (piece->zstd && metadata_is_in_stream(piece)))
        *range = (struct shard_range){.offset = piece->offset, .size = piece->length};
    else if (!shard_request_range(request, range))
        return false;
    else if (is_held(request, verification))
        *range = (struct shard_range){.offset = request->piece->view->data_offset,
                                      .size = request->piece->view->data_length};
    return range->size < SHARD_LARGE;
}

/* Bytes of a tensor's piece, of which the share of a rank is not so large as to be read ahead by
 * itself. */
static uint64_t bytes_stored(const struct metadata_entry *entry, const struct metadata_piece *piece,
                             uint64_t rank_count)
{
    uint64_t bytes = piece->length; /* of a view, that of its whole storage */
    if (!entry->is_tensor || (!metadata_is_in_stream(piece) &&
                              !shape_bytes(entry->ndim, piece->sizes, entry->dtype, &bytes)))
        return 0;
    return bytes / rank_count < SHARD_LARGE ? bytes : 0;
}

static uint64_t count_stored(const struct metadata *metadata, uint64_t rank_count)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < metadata->count; i++) {
        const struct metadata_entry *entry = &metadata->entries[i];
        for (size_t k = 0; k < entry->piece_count; k++)
            bytes += bytes_stored(entry, &entry->pieces[k], rank_count);
    }
    return bytes;
}

static uint64_t count_read(const struct shard_request *requests, size_t count,
                           dcp_verification verification)
{
    struct shard_range range;
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        if (find_range(&requests[i], verification, &range) &&
            (i == 0 || requests[i].piece != requests[i - 1].piece))
            bytes += range.size;
    return bytes;
}

/* If each rank reads as many bytes as this one, some are read by several ranks: these shall come
 * into the page cache. */
static bool are_shared(const struct shard_reader *reader, uint64_t bytes)
{
    if (reader->rank_count < 2 || shard_reader_demands(reader))
        return false;
    uint64_t share = count_stored(reader->metadata, reader->rank_count) / reader->rank_count;
    return bytes > share + share / UNEVEN;
}

struct read_neighbours read_neighbours_choose(const struct shard_reader *reader,
                                              const struct shard_request *requests, size_t count,
                                              dcp_verification verification, size_t thread_count)
{
    uint64_t bytes = count_read(requests, count, verification);
    /* Enough runs for all threads to be busy until the end. */
    uint64_t run = bytes / (4 * (uint64_t)thread_count);
    bool batched = !reader->how.plain && bytes >= SHARD_LARGE && !are_shared(reader, bytes);
    uint64_t most = batched ? READ_BATCH_BYTES : RUN_MOST;
    run = run < most ? run : most;
    if (reader->how.plain || run < WINDOW_MOST)
        run = WINDOW_MOST;
    return (struct read_neighbours){
        .verification = verification,
        .run = run,
        .batched = batched,
        .ends = !save_id_promises_footers(reader->metadata->save_id),
    };
}

/* Also the ends of a stream of which a part is wanted: they say where that lies. Those of one
 * stream and the next are near each other. */
static bool add_ranges(struct batch_plan *plan, const struct shard_request *request,
                       const struct shard_range *range)
{
    const struct metadata_piece *piece = request->piece;
    uint64_t end = piece->offset + piece->length;
    if (!metadata_is_in_stream(piece) || range->size >= piece->length ||
        piece->length < SHARD_STREAM_HEAD)
        return batch_plan_add(plan, piece->file, range->offset, range->size);
    return batch_plan_add(plan, piece->file, piece->offset, SHARD_STREAM_HEAD) &&
           batch_plan_add(plan, piece->file, range->offset, range->size) &&
           batch_plan_add(plan, piece->file, end - SHARD_STREAM_TAIL, SHARD_STREAM_TAIL);
}

bool read_neighbours_add(const struct read_neighbours *neighbours,
                         const struct shard_request *request, struct batch_plan *plan)
{
    struct shard_range range;
    bool first = plan->count == 0;
    uint32_t file = request->piece->file;
    if (!find_range(request, neighbours->verification, &range) ||
        (!first && (plan->ranges[0].file != file || range.offset < plan->ranges[0].start ||
                    range.size > neighbours->run || plan->bytes > neighbours->run - range.size)))
        return false;
    if (neighbours->batched && neighbours->ends)
        return add_ranges(plan, request, &range);
    if (neighbours->batched)
        return batch_plan_add(plan, file, range.offset, range.size);
    if (first)
        *plan = (struct batch_plan){.count = 1, .ranges = {{.file = file, .start = range.offset}}};
    plan->bytes += range.size;
    return true;
}

/* Of streams that the footer lists, what is around the elements is not read. */
void read_neighbours_plan(const struct read_neighbours *neighbours, const struct shard_file *file,
                          const struct shard_request *requests, size_t count,
                          struct batch_plan *plan)
{
    struct shard_range range;
    *plan = (struct batch_plan){0};
    for (size_t i = 0; i < count; i++) {
        if (!find_range(&requests[i], neighbours->verification, &range))
            continue;
        if (file->footer != FOOTER_GOOD) {
            add_ranges(plan, &requests[i], &range);
            continue;
        }
        if (!is_small(&requests[i]))
            shard_request_lay_out(&requests[i], &range);
        batch_plan_add(plan, requests[i].piece->file, range.offset, range.size);
    }
}

static uint64_t end_of(const struct shard_request *request)
{
    return request->piece->offset + request->piece->length;
}

/* Whether a small stream is read with those from `first` to the one before it. */
static bool is_in_window(const struct shard_request *first, const struct shard_request *request)
{
    uint64_t start = first->piece->offset, before = end_of(request - 1);
    uint64_t offset = request->piece->offset;
    if (!is_small(request) || offset < request[-1].piece->offset ||
        end_of(request) - start > WINDOW_MOST)
        return false;
    uint64_t gap = offset > before ? offset - before : 0;
    return gap <= GAP_SIZE || gap <= (offset - start) / GAP_OF_WINDOW;
}

/* How many requests are read at once, and up to where; 0: the first one is read by itself. */
static size_t count_window(const struct shard_request *requests, size_t count, uint64_t *end)
{
    size_t taken = 1;
    if (!is_small(requests))
        return 0;
    *end = end_of(requests);
    for (; taken < count && is_in_window(requests, &requests[taken]); taken++)
        *end = end_of(&requests[taken]) > *end ? end_of(&requests[taken]) : *end;
    return taken;
}

static dcp_status read_window(struct shard_reader *reader, const struct shard_request *requests,
                              size_t count, uint64_t end, dcp_verification verification,
                              struct read_batch *batch)
{
    const struct metadata_piece *first = requests[0].piece;
    struct read_window window;
    RETURN_IF_ERROR(
        read_window_open(&window, reader, first->file, first->offset, end, verification, batch));
    dcp_status status = DCP_OK;
    for (size_t i = 0; status == DCP_OK && i < count; i++)
        status = shard_read_one(reader, &requests[i], verification, &window, NULL);
    read_window_close(&window);
    return status;
}

dcp_status read_neighbours(struct shard_reader *reader, const struct shard_request *requests,
                           size_t count, dcp_verification verification, struct read_batch *batch)
{
    for (size_t i = 0, taken; i < count; i += taken) {
        uint64_t end = requests[i].piece->offset; /* nothing at once */
        size_t together = count_window(&requests[i], count - i, &end);
        taken = together > 0 ? together : 1;
        if (together > 1 || batch)
            RETURN_IF_ERROR(read_window(reader, &requests[i], taken, end, verification, batch));
        else
            RETURN_IF_ERROR(shard_read_one(reader, &requests[i], verification, NULL, NULL));
    }
    return DCP_OK;
}
