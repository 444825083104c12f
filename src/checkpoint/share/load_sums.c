/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/share/load_sums.h"
#include "dcp/load.h"

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"
#include "group/group.h"

bool load_sums_expect(const struct load_sums *sums, const struct share_run *run)
{
    return share_run_is_summed(sums->share, sums->sharing->metadata, run,
                               sums->sharing->options->verification);
}

dcp_status load_sums_init(struct load_sums *sums, const struct load_sharing *sharing,
                          const struct load_share *share)
{
    uint32_t rank = (uint32_t)dcp_group_rank(sharing->options->group);
    *sums = (struct load_sums){.sharing = sharing, .share = share};
    for (size_t at = 0; at < share->run_count; at++) {
        bool expected = load_sums_expect(sums, &share->runs[at]);
        sums->any = sums->any || expected;
        sums->count += expected && share->runs[at].reader == rank;
    }
    sums->mine = memory_allocate_zeroed(sums->count, sizeof *sums->mine);
    return sums->mine ? DCP_OK : error_no_memory(sums->count * sizeof *sums->mine, "checksums");
}

uint64_t load_sums_memory(const struct load_sharing *sharing, const struct load_share *share)
{
    const struct load_sums sums = {.sharing = sharing, .share = share};
    uint64_t count = 0;
    for (size_t at = 0; at < share->run_count; at++)
        count += load_sums_expect(&sums, &share->runs[at]);
    if (count == 0)
        return 0;
    /* A growing buffer may be twice as large as its contents. */
    return count * (sizeof *sums.mine + 2 * LOAD_SUM_SIZE) +
           share->run_count * sizeof(struct shard_part_sum) + count * LOAD_SUM_SIZE +
           share->rank_count * sizeof(size_t);
}

void load_sums_free(struct load_sums *sums)
{
    memory_release(sums->mine);
}

struct shard_part_sum *load_sums_next(struct load_sums *sums)
{
    return &sums->mine[sums->used++];
}

void load_sum_append(struct buffer *out, const struct shard_part_sum *sum)
{
    buffer_append_u32(out, sum->known);
    buffer_append_u32(out, sum->crc);
    buffer_append_u32(out, sum->expected);
    buffer_append_u32(out, 0);
    buffer_append_u64(out, sum->size);
    buffer_append_u64(out, sum->place);
}

struct shard_part_sum load_sum_at(const unsigned char *bytes)
{
    return (struct shard_part_sum){.known = load_u32(bytes) != 0,
                                   .crc = load_u32(bytes + 4),
                                   .expected = load_u32(bytes + 8),
                                   .size = load_u64(bytes + 16),
                                   .place = load_u64(bytes + 24)};
}

/* Every rank's sums, by run. */
static dcp_status spread(const struct load_sums *sums, const struct group_messages *all,
                         struct shard_part_sum *by_run)
{
    const struct load_share *share = sums->share;
    for (uint32_t rank = 0; rank < share->rank_count; rank++) {
        size_t at = all->offsets[rank], end = all->offsets[rank + 1];
        for (uint32_t run = share->first[rank]; run < share->run_count; run = share->next[run]) {
            if (!load_sums_expect(sums, &share->runs[run]))
                continue;
            if (end - at < LOAD_SUM_SIZE)
                return dcp_error_set(DCP_ERR_GROUP,
                                     "rank %u: its message of checksums ends too early", rank);
            by_run[run] = load_sum_at(all->bytes + at);
            at += LOAD_SUM_SIZE;
        }
        if (at != end)
            return dcp_error_set(
                DCP_ERR_GROUP, "rank %u sent checksums for a record that is not being read", rank);
    }
    return DCP_OK;
}

/* Runs of one region follow each other. */
static dcp_status join_all(const struct load_sums *sums, const struct shard_part_sum *by_run)
{
    const struct load_share *share = sums->share;
    for (size_t at = 0, count; at < share->run_count; at += count) {
        const struct share_run *run = &share->runs[at];
        const struct share_region *region = &share->regions[run->region];
        const struct metadata_entry *entry = &sums->sharing->metadata->entries[region->entry];
        for (count = 1; at + count < share->run_count && run[count].region == run->region;)
            count++;
        if (load_sums_expect(sums, run))
            RETURN_IF_ERROR(shard_join_sums(sums->sharing->reader, entry,
                                            &entry->pieces[region->piece], by_run + at, count));
    }
    return DCP_OK;
}

static dcp_status compare_all(const struct load_sums *sums, const struct group_messages *all)
{
    size_t count = sums->share->run_count;
    struct shard_part_sum *by_run = memory_allocate_zeroed(count, sizeof *by_run);
    if (!by_run)
        return error_no_memory(count * sizeof *by_run, "checksums of all ranks");
    dcp_status status = spread(sums, all, by_run);
    if (status == DCP_OK)
        status = join_all(sums, by_run);
    memory_release(by_run);
    return status;
}

dcp_status load_sums_compare(const struct load_sums *sums)
{
    const dcp_load_options *options = sums->sharing->options;
    const struct dcp_collective call = {"comparing checksums", options->timeout_seconds};
    struct group_messages all = {0};
    struct buffer message;
    if (!sums->any)
        return DCP_OK;
    buffer_init(&message, 0);
    for (size_t i = 0; i < sums->count; i++)
        load_sum_append(&message, &sums->mine[i]);
    dcp_status status = group_gather(options->group, &call, options->coordinator,
                                     buffer_status(&message), message.data, message.size, &all);
    if (status == DCP_OK && dcp_group_rank(options->group) == options->coordinator)
        status = compare_all(sums, &all);
    group_messages_free(&all);
    buffer_free(&message);
    return group_agree(options->group, &call, status);
}
