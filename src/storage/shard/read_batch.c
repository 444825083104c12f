/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/shard/read_batch.h"

#include "base/error.h"
#include "base/memory.h"
#include "storage/shard/read_lane.h"
#include "storage/shard/shard_request.h"

#define PAGE ((uint64_t)MEMORY_PAGE)
/* What lies between two ranges is read as well if that takes no longer than another read. */
#define GAP ((uint64_t)32 << 10)

/* A range that is under way, or has been read. */
struct batch_part {
    struct shard_file *file; /* in use */
    uint64_t start, end;     /* equal: the page cache has it, or it could not be read */
    uint64_t tail;           /* bytes behind it that are read when they are asked for */
    unsigned char *bytes;
};

struct read_batch {
    struct shard_reader *reader;
    struct read_lane *lane; /* of which transfers have the numbers of parts */
    size_t count;
    struct batch_part parts[READ_BATCH_RANGES];
};

static bool has_range(const struct batch_plan *plan, uint32_t file, uint64_t start, uint64_t end)
{
    for (size_t i = 0; i < plan->count; i++)
        if (plan->ranges[i].file == file && start >= plan->ranges[i].start &&
            end <= plan->ranges[i].end)
            return true;
    return false;
}

bool batch_plan_add(struct batch_plan *plan, uint32_t file, uint64_t offset, uint64_t size)
{
    uint64_t start = offset & ~(PAGE - 1), end;
    struct batch_range *last = plan->count > 0 ? &plan->ranges[plan->count - 1] : NULL;
    if (size > READ_BATCH_BYTES || __builtin_add_overflow(offset, size + PAGE - 1, &end))
        return false;
    end &= ~(PAGE - 1);
    if (has_range(plan, file, start, end))
        return true;
    bool extends = last && last->file == file && start >= last->start && start <= last->end + GAP;
    uint64_t before = extends ? last->end : start, more = end > before ? end - before : 0;
    if (more > READ_BATCH_BYTES - plan->bytes || (!extends && plan->count == READ_BATCH_RANGES))
        return false;
    if (!extends)
        plan->ranges[plan->count++] = (struct batch_range){file, start, end};
    else if (end > last->end)
        last->end = end;
    plan->bytes += more;
    return true;
}

bool batch_plan_add_span(struct batch_plan *plan, const struct metadata_entry *entry,
                         const struct metadata_piece *piece, int64_t from, int64_t end)
{
    struct shard_range range;
    return shard_span_range(entry, piece, from, end, &range) && range.size < SHARD_LARGE &&
           batch_plan_add(plan, piece->file, range.offset, range.size);
}

/* Of a range, what is read around the page cache: direct transfers cannot reach into the page that
 * the file ends in the middle of, which is the tail. */
static struct batch_part part_of(struct shard_file *file, const struct batch_range *range,
                                 struct cached_group *group)
{
    uint64_t unit = shard_file_unit(file), pages = shard_file_size(file) & ~(PAGE - 1);
    uint64_t start = range->start / unit * unit, end = (range->end + unit - 1) / unit * unit;
    uint64_t tail = end > pages ? shard_file_size(file) - pages : 0;
    bool demanded = shard_reader_demands(file->reader);
    end = end < pages ? end : pages;
    if (start >= end || !shard_file_bypasses_cache(file, group, start, demanded))
        end = start;
    return (struct batch_part){.file = file, .start = start, .end = end, .tail = tail};
}

static dcp_status start_part(struct read_batch *batch, struct batch_part *part, size_t place)
{
    struct read_lane *lane = batch->lane;
    RETURN_IF_ERROR(read_lane_make_buffers(lane, READ_BATCH_BYTES));
    RETURN_IF_ERROR(read_lane_open_queue(lane, part->file));
    size_t size = (size_t)(part->end - part->start);
    part->bytes = lane->buffers + place;
    shard_file_retain(part->file);
    shard_sums_expect(part->file, part->start, size);
    storage_queue_read(lane->queue, &lane->transfers[batch->count], &part->file->file, part->bytes,
                       size, part->start);
    shard_file_count(part->file, size);
    batch->parts[batch->count++] = *part;
    return DCP_OK;
}

static dcp_status start_parts(struct read_batch *batch, const struct batch_plan *plan,
                              dcp_verification verification)
{
    struct cached_group group = {.start = UINT64_MAX};
    struct shard_file *file = NULL;
    dcp_status status = DCP_OK;
    size_t place = 0;
    for (size_t i = 0; i < plan->count && status == DCP_OK; i++) {
        const struct batch_range *range = &plan->ranges[i];
        if (file && file->index != range->file) {
            shard_file_release(batch->reader, file);
            file = NULL;
            group.start = UINT64_MAX;
        }
        if (!file)
            RETURN_IF_ERROR(shard_file_acquire(batch->reader, range->file, verification, &file));
        struct batch_part part = part_of(file, range, &group);
        size_t size = (size_t)(part.end - part.start);
        size_t room = part.tail > 0 ? size + MEMORY_PAGE : size;
        if (size == 0 || room > READ_BATCH_BYTES - place)
            continue;
        status = start_part(batch, &part, place);
        place += room;
    }
    if (file)
        shard_file_release(batch->reader, file);
    return status;
}

struct read_batch *read_batch_begin(struct shard_reader *reader, const struct batch_plan *plan,
                                    dcp_verification verification)
{
    struct read_batch *batch = NULL;
    if (plan->count > 0 && !reader->how.plain)
        batch = memory_allocate_zeroed(1, sizeof *batch);
    if (!batch)
        return NULL;
    batch->reader = reader;
    dcp_status status = read_lane_take(reader, &batch->lane);
    if (status == DCP_OK)
        status = start_parts(batch, plan, verification);
    if (status != DCP_OK)
        error_clear();
    if (batch->count > 0)
        return batch;
    read_batch_end(batch);
    return NULL;
}

/* Through the page cache. */
static dcp_status read_tail(struct batch_part *part)
{
    unsigned char *bytes = part->bytes + (part->end - part->start);
    RETURN_IF_ERROR(shard_file_read(part->file, bytes, (size_t)part->tail, part->end));
    part->end += part->tail;
    part->tail = 0;
    return DCP_OK;
}

dcp_status read_batch_find(struct read_batch *batch, const struct shard_file *file, uint64_t offset,
                           uint64_t size, const unsigned char **bytes)
{
    *bytes = NULL;
    for (size_t i = 0; batch && i < batch->count; i++) {
        struct batch_part *part = &batch->parts[i];
        uint64_t end = part->end + part->tail;
        if (part->file != file || offset < part->start || offset > end || size > end - offset)
            continue;
        dcp_status status = storage_queue_finish(batch->lane->queue, &batch->lane->transfers[i]);
        if (status == DCP_OK && offset + size > part->end)
            status = read_tail(part);
        if (status != DCP_OK) {
            part->end = part->start;
            part->tail = 0;
            return status;
        }
        *bytes = part->bytes + (offset - part->start);
        return DCP_OK;
    }
    return DCP_OK;
}

/* What was not asked for has errors that are nobody's. */
static void finish_parts(struct read_batch *batch)
{
    struct saved_error error;
    error_save(&error);
    for (size_t i = 0; i < batch->count; i++) {
        storage_queue_finish(batch->lane->queue, &batch->lane->transfers[i]);
        if (storage_queue_ways(batch->lane->queue, &batch->parts[i].file->file) & DCP_IO_DIRECT)
            atomic_store_explicit(&batch->reader->direct, true, memory_order_relaxed);
        shard_file_release(batch->reader, batch->parts[i].file);
    }
    error_restore(&error);
}

void read_batch_end(struct read_batch *batch)
{
    if (!batch)
        return;
    finish_parts(batch);
    if (batch->lane)
        read_lane_give(batch->reader, batch->lane, true);
    memory_release(batch);
}
