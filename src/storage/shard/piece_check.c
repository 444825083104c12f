/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/shard/piece_check.h"

#include "base/error.h"
#include "base/memory.h"
#include "state/box.h"
#include "state/copy.h"
#include "state/record_rest.h"

/* Bytes read at a time if only the checksum is needed. */
#define REST_SIZE ((uint64_t)256 << 10)

/* Whether a piece has as many bytes as its record. */
static bool is_all(const struct tensor_view *view)
{
    uint64_t bytes;
    return shape_bytes(view->ndim, view->sizes, view->dtype, &bytes) &&
           bytes == view->storage_bytes;
}

/* Whether reading the piece as a whole passes over all of its record, in order. */
static bool is_record(const struct tensor_view *view)
{
    return is_all(view) && copy_is_dense(view->ndim, view->sizes, view->strides);
}

/* Whether the same is true of a transposed tensor, which is read in the order of its record. */
static bool is_permuted_record(const struct tensor_view *view)
{
    int64_t run = 1;
    for (int32_t i = 0; i < view->ndim; i++)
        for (int32_t d = 0; d < view->ndim; d++)
            if (view->sizes[d] > 1 && view->strides[d] == run) {
                run *= view->sizes[d];
                break;
            }
    return is_all(view) && (uint64_t)run * dcp_dtype_size(view->dtype) == view->storage_bytes;
}

/* Whether elements that follow each other in the piece do so in its record. Of a stream, they must
 * be all of it: its record is known by the piece. */
static bool is_in_order(const struct stored_item *item, const struct tensor_view *view)
{
    return is_record(view) || (item->piece->encoding == PIECE_VIEW &&
                               copy_is_dense(view->ndim, view->sizes, view->strides));
}

/* Where a region begins in its record. */
static uint64_t start_of(const struct stored_item *item, const struct tensor_view *view,
                         struct box region)
{
    int64_t elements = view->storage_offset;
    for (int32_t i = 0; i < region.ndim; i++)
        elements += (region.offsets[i] - item->piece->offsets[i]) * view->strides[i];
    return (uint64_t)elements * dcp_dtype_size(view->dtype);
}

static uint64_t bytes_of(const struct tensor_view *view, struct box region)
{
    return (uint64_t)box_volume(region) * dcp_dtype_size(view->dtype);
}

/* The CRC of all of a record that is read from `before` on, by this reading or by several; summed:
 * of what is read of it. */
static void watch_record(struct stored_item *item, const struct tensor_view *view,
                         const struct piece_reading *reading, bool summed,
                         const struct piece_check *check)
{
    uint64_t size = dcp_dtype_size(view->dtype);
    if (summed && !reading->parts) {
        uint64_t from = (uint64_t)(view->storage_offset + reading->from) * size;
        checked_source_watch_sum(&item->checked, view->data_offset + from,
                                 (uint64_t)(reading->end - reading->from) * size, reading->sum,
                                 stored_item_place(item, view), view->crc);
        return;
    }
    uint64_t start = start_of(item, view, reading->region) - check->before_size;
    uint64_t length = bytes_of(view, reading->region) + check->before_size + check->after_size;
    if (reading->parts)
        checked_source_watch_part(&item->checked, view->data_offset + start, length, reading->parts,
                                  reading->part, stored_item_place(item, view), view->crc);
    else
        checked_source_watch(&item->checked, view->data_offset + start, length, view->crc);
}

/* Also reads the bytes in front of and behind a region; with parts, the first and the last part
 * do that. */
static void complete_record(struct piece_check *check, const struct stored_item *item,
                            const struct tensor_view *view, const struct piece_reading *reading,
                            struct box whole)
{
    uint64_t start = start_of(item, view, whole), end = start + bytes_of(view, whole);
    bool first = !reading->parts || reading->part == 0;
    bool last = !reading->parts || reading->part == shard_parts_count(reading->parts) - 1;
    check->before = view->data_offset;
    check->before_size = first ? start : 0;
    check->after = view->data_offset + end;
    check->after_size = last ? view->data_length - end : 0;
}

/* Of a transposed tensor that several threads or ranks read, the first reads all of the record
 * before. */
static dcp_status check_permuted(struct piece_check *check, struct stored_item *item,
                                 struct tensor_view *view, const struct piece_reading *reading)
{
    if (!reading->parts && !reading->sum && is_permuted_record(view)) {
        watch_record(item, view, reading, false, check);
        return DCP_OK;
    }
    check->held = true;
    bool first = (!reading->parts || reading->part == 0) && (!reading->sum || reading->from == 0);
    return first ? stored_item_check_record(item, view) : DCP_OK;
}

static dcp_status check_by_record(struct piece_check *check, struct stored_item *item,
                                  struct tensor_view *view, const struct piece_reading *reading,
                                  dcp_verification verification)
{
    struct box whole = reading->parts ? shard_parts_whole(reading->parts) : reading->region;
    bool all = reading->extent == EXTENT_WHOLE && is_record(view);
    bool summed = reading->sum && is_in_order(item, view);
    bool together = reading->extent == EXTENT_WHOLE || (reading->sum && reading->sum->together);
    bool large = view->data_length > RECORD_REST_SMALL;
    if (together && large && !all && !summed && is_all(view))
        return check_permuted(check, item, view, reading);
    if (reading->extent == EXTENT_PART && !summed)
        return DCP_OK;
    if (!all && !summed) {
        if (!record_rest_pays(verification, bytes_of(view, whole), view->data_length))
            return DCP_OK;
        check->held = !large;
        if (check->held)
            return stored_item_hold_record(item, view);
        if (!copy_is_dense(whole.ndim, whole.sizes, view->strides)) {
            check->held = verification == DCP_VERIFY_RECORDS;
            return check->held ? stored_item_check_record(item, view) : DCP_OK;
        }
        complete_record(check, item, view, reading, whole);
    }
    watch_record(item, view, reading, summed, check);
    return DCP_OK;
}

/* A CRC-32 of 0 usually means none, but may be a real one: then block sums are used. */
static dcp_status check_in_memory(struct piece_check *check, struct stored_item *item,
                                  const struct tensor_view *view)
{
    bool blocks = !view->has_crc && item->file->footer == FOOTER_GOOD && !item->piece->zstd;
    check->held = view->has_crc || blocks;
    check->bare = !check->held;
    if (view->has_crc)
        return stored_item_check_record(item, view);
    return blocks ? stored_item_load_again(item) : DCP_OK;
}

dcp_status piece_check_arrange(struct piece_check *check, struct stored_item *item,
                               struct tensor_view *view, const struct piece_reading *reading,
                               dcp_verification verification)
{
    *check = (struct piece_check){0};
    if (verification == DCP_VERIFY_NONE || item->passing)
        return DCP_OK;
    check->held = item->trusted;
    if (item->trusted)
        return DCP_OK;
    if (item->in_memory)
        return check_in_memory(check, item, view);
    check->held = item->file->footer == FOOTER_GOOD;
    check->bare = !check->held && !view->has_crc;
    if (check->held)
        checked_source_widen(&item->checked, &item->source);
    if (check->held || check->bare)
        return DCP_OK;
    return check_by_record(check, item, view, reading, verification);
}

/* Reads a range for its checksum only. */
static dcp_status pass_over(const struct stored_item *item, uint64_t offset, uint64_t size)
{
    if (size == 0)
        return DCP_OK;
    uint64_t most = item->reader && item->reader->how.buffer_bytes < REST_SIZE
                        ? item->reader->how.buffer_bytes
                        : REST_SIZE;
    most = size < most ? size : most;
    unsigned char *bytes = memory_allocate((size_t)most);
    if (!bytes)
        return error_no_memory((size_t)most, "a buffer for checking");
    dcp_status status = DCP_OK;
    while (size > 0 && status == DCP_OK) {
        uint64_t taken = size < most ? size : most;
        status = byte_source_read(&item->source, offset, bytes, (size_t)taken);
        offset += taken;
        size -= taken;
    }
    memory_release(bytes);
    return status;
}

dcp_status piece_check_begin(const struct piece_check *check, const struct stored_item *item)
{
    return pass_over(item, check->before, check->before_size);
}

dcp_status piece_check_end(const struct piece_check *check, const struct stored_item *item)
{
    return pass_over(item, check->after, check->after_size);
}

void piece_check_count(const struct piece_check *check, const struct stored_item *item,
                       uint64_t bytes, struct shard_tally *tally)
{
    bool held = check->held || item->checked.passed || item->crc_held;
    tally->checked += held ? bytes : 0;
    tally->unchecked += held ? 0 : bytes;
    tally->bare += !held && check->bare ? bytes : 0;
}
