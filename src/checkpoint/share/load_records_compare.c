/* SPDX-License-Identifier: BSD-3-Clause */
/* After parts of records have been read: joins their sums, and compares these with the records'. */
#include <inttypes.h>

#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/share/load_records.h"
#include "group/group.h"

static void append_sum(struct buffer *message, const struct shard_part_sum *sum)
{
    buffer_append_u32(message, sum->known);
    buffer_append_u32(message, sum->crc);
    buffer_append_u32(message, sum->expected);
    buffer_append_u32(message, 0);
    buffer_append_u64(message, sum->size);
    buffer_append_u64(message, sum->place);
}

/* The sum of a part, in the message of the rank that has read it. */
static dcp_status find_sum(const struct group_messages *all, const struct record_part *part,
                           struct shard_part_sum *sum)
{
    size_t start = all->offsets[part->rank], size = all->offsets[part->rank + 1] - start;
    size_t place = (size_t)part->index * LOAD_RECORDS_SUM_SIZE;
    if (place >= size || size - place < LOAD_RECORDS_SUM_SIZE)
        return dcp_error_set(
            DCP_ERR_GROUP, "rank %" PRIu32 ": its message of checksums ends too early", part->rank);
    const unsigned char *bytes = all->bytes + start + place;
    *sum = (struct shard_part_sum){.known = load_u32(bytes) != 0,
                                   .crc = load_u32(bytes + 4),
                                   .expected = load_u32(bytes + 8),
                                   .size = load_u64(bytes + 16),
                                   .place = load_u64(bytes + 24)};
    return DCP_OK;
}

/* The sums of one record's parts, in order; the same part has the same sum on all ranks. */
static dcp_status collect_sums(const struct load_records *records, const struct group_messages *all,
                               const struct record_part *parts, size_t count,
                               struct shard_part_sum *sums, size_t *sum_count)
{
    const struct metadata_entry *entry = &records->sharing->metadata->entries[parts->entry];
    *sum_count = 0;
    for (size_t i = 0, alike; i < count; i += alike) {
        struct shard_part_sum *first = &sums[(*sum_count)++], other;
        alike = record_parts_alike(&parts[i], count - i);
        RETURN_IF_ERROR(find_sum(all, &parts[i], first));
        for (size_t k = 1; k < alike; k++) {
            RETURN_IF_ERROR(find_sum(all, &parts[i + k], &other));
            if (other.known != first->known || other.crc != first->crc)
                return shard_reader_blame(
                    records->sharing->reader, entry, &entry->pieces[parts->piece],
                    dcp_error_set(DCP_ERR_CHECKSUM,
                                  "ranks %" PRIu32 " and %" PRIu32
                                  " read the same part of it, but found different bytes",
                                  parts[i].rank, parts[i + k].rank));
        }
    }
    return DCP_OK;
}

static dcp_status compare_records(const struct load_records *records,
                                  const struct group_messages *all)
{
    size_t most = records->joined_count;
    struct shard_part_sum *sums = memory_allocate_array(most, sizeof *sums);
    dcp_status status =
        sums ? DCP_OK : error_no_memory(most * sizeof *sums, "checksums of all ranks");
    for (size_t i = 0, of; i < records->joined_count && status == DCP_OK; i += of) {
        const struct record_part *parts = &records->joined[i];
        const struct metadata_entry *entry = &records->sharing->metadata->entries[parts->entry];
        size_t count;
        of = record_parts_of_record(parts, records->joined_count - i);
        status = collect_sums(records, all, parts, of, sums, &count);
        if (status == DCP_OK)
            status = shard_join_sums(records->sharing->reader, entry, &entry->pieces[parts->piece],
                                     sums, count);
    }
    memory_release(sums);
    return status;
}

dcp_status load_records_compare(const struct load_records *records, dcp_status mine)
{
    const dcp_load_options *options = records->sharing->options;
    const struct dcp_collective call = {"comparing checksums", options->timeout_seconds};
    struct group_messages all = {0};
    struct buffer message;
    if (!records->any)
        return mine;
    buffer_init(&message, 0);
    for (size_t i = 0; i < records->own_count; i++)
        append_sum(&message, &records->own[i].sum);
    if (mine == DCP_OK)
        mine = buffer_status(&message);
    dcp_status status = group_gather(options->group, &call, options->coordinator, mine,
                                     message.data, message.size, &all);
    if (status == DCP_OK && dcp_group_rank(options->group) == options->coordinator)
        status = compare_records(records, &all);
    group_messages_free(&all);
    buffer_free(&message);
    return status;
}
