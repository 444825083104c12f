/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/share/load_records.h"

#include <inttypes.h>

#include "base/error.h"
#include "base/memory.h"
#include "group/group.h"
#include "state/box.h"
#include "storage/commit/save_id.h"

/* Whether a piece may have one checksum for all of it: its file has none of blocks, as far as is
 * known without opening it. */
static bool may_be_record(const struct metadata *metadata, const struct metadata_piece *piece)
{
    if (!metadata_is_in_stream(piece))
        return piece->encoding == PIECE_VIEW;
    const struct metadata_member *member = metadata_file_member(metadata, piece->file);
    return !save_id_promises_footers(member ? member->save_id : metadata->save_id);
}

/* A run as a part. Under a memory limit only those of records that ranks read for each other count,
 * as every rank knows how many these are. */
static bool is_run_part(const struct load_sharing *sharing, const struct load_share *share,
                        size_t run, struct record_part *part)
{
    const struct share_region *region = &share->regions[share->runs[run].region];
    const struct metadata_entry *entry = &sharing->metadata->entries[region->entry];
    if (sharing->options->memory_limit != 0 &&
        !box_equal(region->box, share_piece_box(entry, region->piece)))
        return false;
    return may_be_record(sharing->metadata, &entry->pieces[region->piece]) &&
           record_part_of_run(sharing->metadata, share, &share->runs[run], part);
}

/* How many of the runs of all ranks are parts. */
static uint64_t count_runs(const struct load_sharing *sharing, const struct load_share *share)
{
    struct record_part part;
    uint64_t count = 0;
    for (size_t run = 0; run < share->run_count; run++)
        count += is_run_part(sharing, share, run, &part);
    return count;
}

/* Whether ranks may have something to check together; the same on all of them. */
static bool is_of_use(const struct load_sharing *sharing, const struct load_share *share)
{
    const dcp_load_options *options = sharing->options;
    const struct metadata *metadata = sharing->metadata;
    if (dcp_group_size(options->group) == 1 || options->verification == DCP_VERIFY_NONE)
        return false;
    if (options->memory_limit != 0)
        return count_runs(sharing, share) > 0;
    for (size_t i = 0; i < metadata->count; i++) {
        const struct metadata_entry *entry = &metadata->entries[i];
        for (size_t k = 0; entry->is_tensor && k < entry->piece_count; k++)
            if (may_be_record(metadata, &entry->pieces[k]))
                return true;
    }
    return false;
}

/* What this rank reads for itself, as a part. */
static bool is_item_part(const struct load_sharing *sharing, const struct read_item *item,
                         struct record_part *part)
{
    const struct metadata *metadata = sharing->metadata;
    const struct share_want want = {item->entry, item->piece, item->region};
    return sharing->options->memory_limit == 0 &&
           may_be_record(metadata, &metadata->entries[item->entry].pieces[item->piece]) &&
           record_part_of(metadata, &want, part);
}

static void add_own(struct load_records *records, size_t place, const struct record_part *part,
                    struct buffer *message)
{
    records->own[records->own_count++].place = place;
    record_part_append(message, part);
}

/* What this rank reads of records; message: for the coordinator. */
static dcp_status list_own(struct load_records *records, const struct load_share *share,
                           const struct load_plan *plan, struct buffer *message)
{
    const struct load_sharing *sharing = records->sharing;
    uint32_t rank = (uint32_t)dcp_group_rank(sharing->options->group);
    size_t first = share->run_count > 0 ? share->first[rank] : 0, count = 0;
    struct record_part part;
    for (size_t i = 0; i < plan->count; i++)
        count += is_item_part(sharing, &plan->items[i], &part);
    if (count > 0 && !(records->sums = memory_allocate_zeroed(plan->count, sizeof *records->sums)))
        return error_no_memory(plan->count * sizeof *records->sums, "parts of records");
    for (size_t run = first; run < share->run_count; run = share->next[run])
        count += is_run_part(sharing, share, run, &part);
    records->own = memory_allocate_zeroed(count, sizeof *records->own);
    if (!records->own)
        return error_no_memory(count * sizeof *records->own, "parts of records");
    for (size_t i = 0; i < plan->count; i++)
        if (is_item_part(sharing, &plan->items[i], &part))
            add_own(records, i, &part, message);
    records->item_count = records->own_count;
    for (size_t run = first; run < share->run_count; run = share->next[run])
        if (is_run_part(sharing, share, run, &part))
            add_own(records, run, &part, message);
    return buffer_status(message);
}

/* A byte for each part that a rank has stated, after one that says whether any rank has some. */
static dcp_status answer_ranks(const struct load_records *records, const struct group_messages *all,
                               struct buffer *answers)
{
    for (int rank = 0; rank < all->count; rank++) {
        size_t size = all->offsets[rank + 1] - all->offsets[rank];
        buffer_append_zeros(&answers[rank], 1 + size / RECORD_PART_SIZE);
        RETURN_IF_ERROR(buffer_status(&answers[rank]));
        answers[rank].data[0] = records->joined_count > 0;
    }
    for (size_t i = 0; i < records->joined_count; i++)
        answers[records->joined[i].rank].data[1 + (size_t)records->joined[i].index] = 1;
    return DCP_OK;
}

static dcp_status join_parts(struct load_records *records, const struct group_messages *all,
                             struct buffer *answers)
{
    const struct metadata *metadata = records->sharing->metadata;
    size_t most = all->offsets[all->count] / RECORD_PART_SIZE, count = 0;
    records->joined = memory_allocate_array(most, sizeof *records->joined);
    if (!records->joined)
        return error_no_memory(most * sizeof *records->joined, "parts of records of all ranks");
    for (int rank = 0; rank < all->count; rank++) {
        size_t size = all->offsets[rank + 1] - all->offsets[rank];
        RETURN_IF_ERROR(record_parts_decode(all->bytes + all->offsets[rank], size, metadata,
                                            (uint32_t)rank, records->joined + count));
        count += size / RECORD_PART_SIZE;
    }
    records->joined_count = record_parts_join(records->joined, count, metadata);
    return answer_ranks(records, all, answers);
}

static dcp_status hear_answer(struct load_records *records, const struct buffer *heard)
{
    if (heard->size != 1 + records->own_count)
        return dcp_error_set(DCP_ERR_GROUP,
                             "the coordinator's answer on parts of records has %zu bytes, "
                             "expected %zu",
                             heard->size, 1 + records->own_count);
    records->any = heard->data[0] != 0;
    for (size_t i = 0; i < records->own_count; i++) {
        struct own_part *own = &records->own[i];
        own->joined = own->sum.together = heard->data[1 + i] != 0;
        if (i < records->item_count && own->joined)
            records->sums[own->place] = &own->sum;
    }
    return DCP_OK;
}

/* States the parts of this rank, and hears which of them are joined. */
static dcp_status exchange_parts(struct load_records *records, dcp_status status,
                                 const struct buffer *message)
{
    const dcp_load_options *options = records->sharing->options;
    const struct dcp_collective asking = {"gathering parts of records", options->timeout_seconds};
    const struct dcp_collective call = {"choosing what to check", options->timeout_seconds};
    size_t rank_count = (size_t)dcp_group_size(options->group);
    bool coordinates = dcp_group_rank(options->group) == options->coordinator;
    struct group_messages all = {0};
    struct buffer *answers = NULL, heard;
    buffer_init(&heard, 0);
    status = group_gather(options->group, &asking, options->coordinator, status, message->data,
                          message->size, &all);
    if (status == DCP_OK && coordinates) {
        answers = memory_allocate_zeroed(rank_count, sizeof *answers);
        status = answers ? join_parts(records, &all, answers)
                         : error_no_memory(rank_count * sizeof *answers, "answers to ranks");
    }
    group_messages_free(&all);
    status = group_scatter(options->group, &call, options->coordinator, status, answers, &heard);
    if (status == DCP_OK)
        status = hear_answer(records, &heard);
    for (size_t rank = 0; answers && rank < rank_count; rank++)
        buffer_free(&answers[rank]);
    memory_release(answers);
    buffer_free(&heard);
    return group_agree(options->group, &call, status);
}

dcp_status load_records_agree(const struct load_sharing *sharing, const struct load_share *share,
                              const struct load_plan *plan, struct load_records *records)
{
    struct buffer message;
    *records = (struct load_records){.sharing = sharing};
    if (!is_of_use(sharing, share))
        return DCP_OK;
    buffer_init(&message, 0);
    dcp_status status = list_own(records, share, plan, &message);
    status = exchange_parts(records, status, &message);
    buffer_free(&message);
    return status;
}

struct shard_part_sum *load_records_sum(const struct load_records *records, size_t run)
{
    size_t low = records->item_count, high = records->own_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (records->own[middle].place < run)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == records->own_count || records->own[low].place != run)
        return NULL;
    return records->own[low].joined ? &records->own[low].sum : NULL;
}

/* Most is taken while sums are compared; before, each rank gets an answer. A growing buffer may be
 * twice as large as its contents. */
uint64_t load_records_memory(const struct load_sharing *sharing, const struct load_share *share)
{
    enum { OF_PART = sizeof(struct own_part) + sizeof(struct record_part) };
    enum { OF_SUM = sizeof(struct shard_part_sum) + 3 * LOAD_RECORDS_SUM_SIZE };
    enum { OF_RANK = sizeof(size_t) + sizeof(struct buffer) + 128 };
    uint64_t count =
        sharing->options->verification == DCP_VERIFY_NONE ? 0 : count_runs(sharing, share);
    return count == 0 ? 0 : count * (OF_PART + OF_SUM) + share->rank_count * (uint64_t)OF_RANK;
}

void load_records_free(struct load_records *records)
{
    memory_release(records->own);
    memory_release(records->sums);
    memory_release(records->joined);
}
