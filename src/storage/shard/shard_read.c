/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading one region of one stored tensor, or one object. */
#include <inttypes.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/memory_account.h"
#include "format/metadata/metadata_codec.h"
#include "format/streams/item.h"
#include "state/box.h"
#include "state/copy.h"
#include "storage/shard/piece_check.h"
#include "storage/shard/read_region.h"

/* Must stay where it is while it is open. */
struct shard_piece {
    struct stored_item item;
    struct tensor_view view;
    struct piece_check check;
    dcp_verification verification;
    struct shard_range next; /* what is read after the next span; its file is in use, or NULL */
};

static dcp_status check_boxes(const struct metadata_entry *entry,
                              const struct metadata_piece *piece, struct box region,
                              const struct state_chunk *target)
{
    const struct box stored = {entry->ndim, piece->offsets, piece->sizes};
    const struct box wanted = {entry->ndim, target->offsets, target->sizes};
    if (entry->is_tensor && box_contains(stored, region) && box_contains(wanted, region))
        return DCP_OK;
    char text[256];
    return dcp_error_set(DCP_ERR_INTERNAL, "%s: region %s is not in both the piece and its target",
                         entry->name, box_format(region, text, sizeof text));
}

/* For a region: small enough to stay in a core's cache, unless each request costs time of its own.
 */
static size_t choose_buffer(const struct stored_item *item)
{
    if (!item->reader)
        return 0;
    size_t most = item->reader->how.buffer_bytes;
    const dcp_storage_traits *traits = item->file ? &item->file->file.directory->traits : NULL;
    bool costly = traits && (traits->far || traits->request_size > READ_REGION_BUFFER);
    return costly || most < READ_REGION_BUFFER ? most : READ_REGION_BUFFER;
}

static dcp_status read_into(const struct stored_item *item, struct box region,
                            const struct tensor_view *view, dcp_dtype dtype,
                            const struct state_chunk *target)
{
    int64_t offsets[DCP_MAX_DIMS], way = 0;
    for (int32_t i = 0; i < region.ndim; i++) {
        offsets[i] = region.offsets[i] - item->piece->offsets[i];
        way += (region.offsets[i] - target->offsets[i]) * target->strides[i];
    }
    struct region_target to = {
        .dtype = dtype,
        .device = target->device,
        .element = (unsigned char *)target->data + way * (int64_t)dcp_dtype_size(dtype),
        .strides = target->strides,
        .buffer_bytes = choose_buffer(item),
        .lanes = item->reader ? &item->reader->device_lanes : NULL,
    };
    return read_region(&item->source, view, offsets, region.sizes, &to);
}

static dcp_status open_piece(struct shard_piece *opened, struct shard_reader *reader,
                             const struct metadata_entry *entry, const struct metadata_piece *piece,
                             const struct piece_reading *reading, dcp_verification verification)
{
    RETURN_IF_ERROR(stored_item_open_in(&opened->item, reader, entry, piece, verification,
                                        reading->extent == EXTENT_WHOLE, reading->window));
    dcp_status status = stored_item_foresee(&opened->item, verification, &opened->view);
    if (status == DCP_OK)
        status = piece_check_arrange(&opened->check, &opened->item, &opened->view, reading,
                                     verification);
    opened->item.checked.next = reading->next;
    if (status == DCP_OK)
        status = piece_check_begin(&opened->check, &opened->item);
    if (status != DCP_OK)
        stored_item_close(&opened->item);
    return status;
}

/* Counts stored bytes of elements that were read and checked as far as possible. tally: NULL, or
 * that of a window. */
static dcp_status end_piece(struct shard_piece *opened, dcp_verification verification,
                            uint64_t bytes, struct shard_tally *tally)
{
    struct shard_tally own = {0};
    RETURN_IF_ERROR(piece_check_end(&opened->check, &opened->item));
    RETURN_IF_ERROR(stored_item_end(&opened->item, &opened->view, verification));
    piece_check_count(&opened->check, &opened->item, bytes, tally ? tally : &own);
    shard_reader_count(opened->item.reader, &own);
    return DCP_OK;
}

dcp_status shard_read_request(struct shard_reader *reader, const struct shard_request *request,
                              dcp_verification verification, struct read_window *window,
                              struct shard_parts *parts, size_t part,
                              const struct shard_range *next)
{
    const struct metadata_entry *entry = request->entry;
    const struct metadata_piece *piece = request->piece;
    struct shard_piece opened;
    RETURN_IF_ERROR(check_boxes(entry, piece, request->region, request->target));
    if (box_volume(request->region) == 0)
        return DCP_OK;
    const struct box stored = {entry->ndim, piece->offsets, piece->sizes};
    const struct box whole = parts ? shard_parts_whole(parts) : request->region;
    struct piece_reading reading = {.region = request->region,
                                    .extent =
                                        box_equal(whole, stored) ? EXTENT_WHOLE : EXTENT_REGION,
                                    .window = window,
                                    .next = next,
                                    .parts = parts,
                                    .part = part,
                                    .sum = request->sum};
    if (request->sum) {
        reading.from = box_position(stored, request->region, 0);
        reading.end = reading.from + box_volume(request->region);
    }
    dcp_status status = open_piece(&opened, reader, entry, piece, &reading, verification);
    if (status != DCP_OK)
        return shard_reader_blame(reader, entry, piece, status);
    uint64_t wanted = (uint64_t)box_volume(request->region) * dcp_dtype_size(entry->dtype);
    opened.item.checked.part = (struct progress_part){reader->progress, wanted};
    status =
        read_into(&opened.item, request->region, &opened.view, request->dtype, request->target);
    if (status == DCP_OK)
        status = end_piece(&opened, verification, wanted, window ? &window->tally : NULL);
    if (status == DCP_OK)
        status = progress_part_end(&opened.item.checked.part);
    stored_item_close(&opened.item);
    return shard_reader_blame(reader, entry, piece, status);
}

dcp_status shard_read_tensor(struct shard_reader *reader, const struct metadata_entry *entry,
                             const struct metadata_piece *piece, struct box region, dcp_dtype dtype,
                             const struct state_chunk *target, dcp_verification verification)
{
    struct shard_request request = {entry, piece, region, dtype, target, NULL};
    dcp_status status = shard_read_request(reader, &request, verification, NULL, NULL, 0, NULL);
    device_lanes_clear(&reader->device_lanes);
    return status;
}

bool shard_piece_flows(const struct shard_piece *opened)
{
    const struct tensor_view *view = &opened->view;
    return !opened->item.passing || copy_is_dense(view->ndim, view->sizes, view->strides);
}

/* Else parts would have the stream decompressed again and again: if memory is not limited, it is
 * held. */
static dcp_status make_flow(struct shard_piece *opened)
{
    if (shard_piece_flows(opened) || memory_account_is_limited(memory_account_current()))
        return DCP_OK;
    RETURN_IF_ERROR(stored_item_end(&opened->item, &opened->view, opened->verification));
    return stored_item_hold(&opened->item);
}

static dcp_status piece_open(struct shard_reader *reader, const struct metadata_entry *entry,
                             const struct metadata_piece *piece,
                             const struct piece_reading *reading, dcp_verification verification,
                             struct shard_piece **opened)
{
    struct shard_piece *made = *opened = memory_allocate(sizeof *made);
    if (!made)
        return error_no_memory(sizeof *made, "an open piece");
    dcp_status status = open_piece(made, reader, entry, piece, reading, verification);
    made->verification = verification;
    made->next.file = NULL;
    if (status == DCP_OK)
        return DCP_OK;
    memory_release(made);
    *opened = NULL;
    return shard_reader_blame(reader, entry, piece, status);
}

dcp_status shard_piece_open(struct shard_reader *reader, const struct metadata_entry *entry,
                            const struct metadata_piece *piece, struct box region, bool partly,
                            dcp_verification verification, struct read_batch *batch,
                            struct shard_piece **opened)
{
    const struct box stored = {entry->ndim, piece->offsets, piece->sizes};
    const struct read_window window = {.reader = reader, .batch = batch};
    const struct piece_reading reading = {.region = region,
                                          .window = batch ? &window : NULL,
                                          .extent = partly                      ? EXTENT_PART
                                                    : box_equal(stored, region) ? EXTENT_WHOLE
                                                                                : EXTENT_REGION};
    return piece_open(reader, entry, piece, &reading, verification, opened);
}

dcp_status shard_piece_open_part(struct shard_reader *reader, const struct metadata_entry *entry,
                                 const struct metadata_piece *piece, int64_t from, int64_t end,
                                 dcp_verification verification, struct read_batch *batch,
                                 struct shard_part_sum *sum, struct shard_piece **opened)
{
    const struct read_window window = {.reader = reader, .batch = batch};
    const struct piece_reading reading = {.region = {entry->ndim, piece->offsets, piece->sizes},
                                          .window = batch ? &window : NULL,
                                          .extent = EXTENT_PART,
                                          .sum = sum,
                                          .from = from,
                                          .end = end};
    *sum = (struct shard_part_sum){.together = sum->together};
    return piece_open(reader, entry, piece, &reading, verification, opened);
}

void shard_piece_use(struct shard_piece *opened, struct read_batch *batch)
{
    opened->item.checked.batch = batch;
}

dcp_status shard_piece_read(struct shard_piece *opened, struct box region, void *elements)
{
    const struct metadata_entry *entry = opened->item.entry;
    int64_t strides[DCP_MAX_DIMS];
    shape_strides(region.ndim, region.sizes, strides);
    const struct state_chunk dense = {.offsets = (int64_t *)region.offsets,
                                      .sizes = (int64_t *)region.sizes,
                                      .strides = strides,
                                      .data = elements};
    RETURN_IF_ERROR(check_boxes(entry, opened->item.piece, region, &dense));
    RETURN_IF_ERROR(make_flow(opened));
    return shard_reader_blame(
        opened->item.reader, entry, opened->item.piece,
        read_into(&opened->item, region, &opened->view, entry->dtype, &dense));
}

/* Where a region whose elements lie one after the other begins in what is stored, in elements. */
static int64_t first_of(const struct shard_piece *opened, struct box region)
{
    int64_t first = opened->view.storage_offset;
    for (int32_t i = 0; i < region.ndim; i++)
        first += (region.offsets[i] - opened->item.piece->offsets[i]) * opened->view.strides[i];
    return first;
}

/* Elements that lie one after the other, as one dimension: rows that are begun or ended in the
 * middle would otherwise be reads of their own. */
static dcp_status read_dense_span(struct shard_piece *opened, struct box region, int64_t from,
                                  int64_t end, void *elements)
{
    const struct stored_item *item = &opened->item;
    const int64_t volume = box_volume(region), size = end - from, stride = 1;
    struct tensor_view flat = opened->view;
    const struct region_target to = {.dtype = item->entry->dtype,
                                     .element = elements,
                                     .strides = &stride,
                                     .buffer_bytes = choose_buffer(item)};
    flat.storage_offset = first_of(opened, region);
    flat.ndim = 1;
    flat.sizes = &volume;
    flat.strides = &stride;
    return shard_reader_blame(item->reader, item->entry, item->piece,
                              read_region(&item->source, &flat, &from, &size, &to));
}

static void forget_next(struct shard_piece *opened)
{
    if (opened->next.file)
        shard_file_release(opened->item.reader, opened->next.file);
    opened->next.file = NULL;
    opened->item.checked.next = NULL;
}

static bool is_dense_span(const struct shard_piece *opened, struct box region, int64_t from,
                          int64_t end)
{
    const struct metadata_piece *piece = opened->item.piece;
    const struct box stored = {opened->item.entry->ndim, piece->offsets, piece->sizes};
    return box_contains(stored, region) && from >= 0 && end <= box_volume(region) &&
           copy_is_dense(region.ndim, region.sizes, opened->view.strides);
}

static dcp_status read_span(struct shard_piece *opened, struct box region, int64_t from,
                            int64_t end, void *elements)
{
    const struct metadata_entry *entry = opened->item.entry;
    unsigned char *bytes = elements;
    RETURN_IF_ERROR(make_flow(opened));
    if (is_dense_span(opened, region, from, end))
        return read_dense_span(opened, region, from, end, elements);
    while (from < end) {
        struct box_storage box;
        int64_t taken = box_next(region, from, end, &box);
        RETURN_IF_ERROR(shard_piece_read(opened, box_of(region.ndim, &box), bytes));
        bytes += (size_t)taken * dcp_dtype_size(entry->dtype);
        from += taken;
    }
    return DCP_OK;
}

dcp_status shard_piece_read_span(struct shard_piece *opened, struct box region, int64_t from,
                                 int64_t end, void *elements)
{
    dcp_status status = read_span(opened, region, from, end, elements);
    forget_next(opened); /* it has begun, and keeps its file */
    return status;
}

/* Whether bytes can be given as they are read, without a place of their own: they are those of a
 * file, which reading ahead has in its buffers. */
static bool can_be_given(const struct shard_piece *opened, struct box region, int64_t from,
                         int64_t end)
{
    const struct stored_item *item = &opened->item;
    const struct tensor_view *view = &opened->view;
    return item->source.context == &item->checked && !item->reader->how.plain && !view->swapped &&
           !view->conjugate && !view->negative && view->data_length == view->storage_bytes &&
           is_dense_span(opened, region, from, end);
}

static dcp_status give_span(struct shard_piece *opened, struct box region, int64_t from,
                            int64_t end, byte_taker take, void *taking)
{
    struct stored_item *item = &opened->item;
    const struct tensor_view *view = &opened->view;
    uint64_t size = dcp_dtype_size(view->dtype);
    int64_t first, last;
    uint64_t start;
    bool fits = checked_add_i64(first_of(opened, region), from, &first) && first >= 0 &&
                checked_add_i64(first, end - from, &last) &&
                (uint64_t)last <= view->storage_bytes / size &&
                checked_add_u64(view->data_offset, (uint64_t)first * size, &start);
    dcp_status status =
        fits ? checked_source_give(&item->checked, &item->source, start,
                                   (size_t)((uint64_t)(end - from) * size), take, taking)
             : dcp_error_set(DCP_ERR_FORMAT, "the elements reach beyond the stored bytes");
    return shard_reader_blame(item->reader, item->entry, item->piece, status);
}

dcp_status shard_piece_pass_span(struct shard_piece *opened, struct box region, int64_t from,
                                 int64_t end, void *room, byte_taker take, void *taking)
{
    const size_t size = dcp_dtype_size(opened->item.entry->dtype);
    const int64_t most = (int64_t)(SHARD_PASS_ROOM / size);
    dcp_status status = DCP_OK;
    if (can_be_given(opened, region, from, end)) {
        status = give_span(opened, region, from, end, take, taking);
        forget_next(opened);
        return status;
    }
    if (end - from > most)
        forget_next(opened);
    for (int64_t taken; from < end && status == DCP_OK; from += taken) {
        taken = end - from < most ? end - from : most;
        status = shard_piece_read_span(opened, region, from, from + taken, room);
        if (status == DCP_OK)
            status = take(taking, room, (size_t)taken * size);
    }
    return status;
}

void shard_piece_foresee(struct shard_piece *opened, const struct metadata_entry *entry,
                         const struct metadata_piece *piece, int64_t from, int64_t end)
{
    struct stored_item *item = &opened->item;
    struct shard_range next;
    if (!item->file || item->reader->how.plain ||
        !shard_span_range(entry, piece, from, end, &next) || next.size < SHARD_LARGE)
        return;
    forget_next(opened);
    if (shard_file_acquire(item->reader, piece->file, opened->verification, &next.file) != DCP_OK) {
        error_clear(); /* it goes wrong again when the piece is opened */
        return;
    }
    if (piece == item->piece) { /* which says where its elements are */
        uint64_t size = dcp_dtype_size(entry->dtype);
        next.offset = stored_item_place(item, &opened->view) +
                      (uint64_t)(opened->view.storage_offset + from) * size;
        next.size = (uint64_t)(end - from) * size;
    } else {
        shard_file_expect_piece(next.file, piece, opened->verification);
    }
    opened->next = next;
    item->checked.next = &opened->next;
}

dcp_status shard_piece_fill(struct shard_piece *opened, const struct shard_request *request)
{
    const struct stored_item *item = &opened->item;
    dcp_status status = check_boxes(item->entry, item->piece, request->region, request->target);
    if (status == DCP_OK)
        status = read_into(item, request->region, &opened->view, request->dtype, request->target);
    return shard_reader_blame(item->reader, item->entry, item->piece, status);
}

bool shard_piece_is_of(const struct shard_piece *opened, const struct metadata_piece *piece,
                       dcp_verification verification)
{
    return opened->item.piece == piece && opened->verification == verification;
}

uint64_t shard_piece_way(const struct shard_piece *opened, struct box region)
{
    const struct tensor_view *view = &opened->view;
    int64_t first = view->storage_offset;
    for (int32_t i = 0; i < region.ndim; i++)
        first += (region.offsets[i] - opened->item.piece->offsets[i]) * view->strides[i];
    if (!opened->item.passing)
        return 0;
    return decompressed_source_way(&opened->item.decompressed,
                                   view->data_offset +
                                       (uint64_t)first * dcp_dtype_size(view->dtype));
}

dcp_status shard_piece_end(struct shard_piece *opened, uint64_t bytes)
{
    const struct stored_item *item = &opened->item;
    return shard_reader_blame(item->reader, item->entry, item->piece,
                              end_piece(opened, opened->verification, bytes, NULL));
}

void shard_piece_close(struct shard_piece *opened)
{
    if (!opened)
        return;
    forget_next(opened);
    stored_item_close(&opened->item);
    memory_release(opened);
}

dcp_status shard_place_region(const struct metadata_entry *entry, struct box held,
                              const void *elements, struct box region, dcp_dtype dtype,
                              const struct state_chunk *target)
{
    uint64_t bytes;
    int64_t strides[DCP_MAX_DIMS];
    const struct metadata_piece piece = {
        .offsets = held.offsets, .sizes = held.sizes, .encoding = PIECE_RAW};
    RETURN_IF_ERROR(check_boxes(entry, &piece, region, target));
    if (!shape_bytes(held.ndim, held.sizes, entry->dtype, &bytes))
        return dcp_error_set(DCP_ERR_INTERNAL, "%s: a region beyond any memory", entry->name);
    shape_strides(held.ndim, held.sizes, strides);
    const struct tensor_view view = {.dtype = entry->dtype,
                                     .ndim = held.ndim,
                                     .sizes = held.sizes,
                                     .strides = strides,
                                     .data_length = bytes,
                                     .storage_bytes = bytes};
    const struct stored_item item = {.piece = &piece,
                                     .source = byte_source_memory(elements, (size_t)bytes)};
    dcp_status status = read_into(&item, region, &view, dtype, target);
    return status != DCP_OK ? error_prefix(status, "%s", entry->name) : DCP_OK;
}

dcp_status shard_read_object(struct shard_reader *reader, const struct metadata_entry *entry,
                             const struct metadata_piece *piece, dcp_verification verification,
                             struct state_pool *pool, dcp_state **object)
{
    struct stored_item item;
    if (entry->is_tensor && !piece->object)
        return dcp_error_set(DCP_ERR_KIND, "%s: is a tensor, not an object", entry->name);
    if (piece->encoding == PIECE_VIEW)
        return shard_reader_blame(reader, entry, piece,
                                  pt_read_object(reader->metadata, piece, pool, object));
    dcp_status status = stored_item_open(&item, reader, entry, piece, verification, true);
    if (status == DCP_OK) {
        status = item_read_object(item.source, pool, object);
        stored_item_close(&item);
    }
    return shard_reader_blame(reader, entry, piece, status);
}
