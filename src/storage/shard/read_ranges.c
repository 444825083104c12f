/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading ranges that lie apart in a file, as headers do: several are under way at a time, around
 * the page cache, where single pages would be in the way of larger ones later. */
#include "base/memory_account.h"
#include "storage/shard/read_batch.h"

/* Fewer ranges are not worth a batch. */
#define BATCHED_LEAST 8

/* Ranges up to `end` that have begun. */
struct ranges_ahead {
    struct read_batch *batch; /* NULL: they are read at their turn */
    size_t end;
};

/* As many as fit, from one on; the page cache gets what no batch is for. */
static struct ranges_ahead begin(struct shard_file *file, const struct byte_range *ranges,
                                 size_t from, size_t count)
{
    struct ranges_ahead ahead = {.end = from};
    struct cached_group group = {.start = UINT64_MAX};
    struct batch_plan plan = {0};
    while (ahead.end < count &&
           batch_plan_add(&plan, file->index, ranges[ahead.end].offset, ranges[ahead.end].size))
        ahead.end++;
    if (ahead.end == from && from < count)
        ahead.end++; /* too large for a batch */
    if (plan.count >= BATCHED_LEAST && !memory_account_is_limited(memory_account_current()))
        ahead.batch = read_batch_begin(file->reader, &plan, DCP_VERIFY_NONE);
    for (size_t i = from; !ahead.batch && i < ahead.end; i++)
        shard_file_expect(file, &group, ranges[i].offset, ranges[i].size);
    return ahead;
}

dcp_status shard_file_read_ranges(struct shard_file *file, const struct byte_range *ranges,
                                  size_t count, unsigned char *room, byte_range_visitor visit,
                                  void *visiting)
{
    struct ranges_ahead current = begin(file, ranges, 0, count);
    struct ranges_ahead next = begin(file, ranges, current.end, count);
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < count && status == DCP_OK; i++) {
        const struct byte_range *range = &ranges[i];
        const unsigned char *bytes;
        if (i == current.end) {
            read_batch_end(current.batch);
            current = next;
            next = begin(file, ranges, current.end, count);
        }
        status = read_batch_find(current.batch, file, range->offset, range->size, &bytes);
        if (status == DCP_OK && !bytes) {
            status = shard_file_read(file, room, range->size, range->offset);
            bytes = room;
        }
        status = visit(visiting, i, status == DCP_OK ? bytes : NULL, status);
    }
    read_batch_end(current.batch);
    read_batch_end(next.batch);
    return status;
}
