/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds what several ranks want. Many want the same, so each first sends a digest of what it wants;
 * of the ranks with equal digests, the lowest then sends the full list for all of them. */
#include <inttypes.h>

#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/share/load_exchange.h"
#include "checkpoint/share/load_sharing.h"
#include "group/group.h"
#include "group/host_memory.h"
#include "group/host_ranks.h"

/* The smallest part of a region that several ranks read: a multiple of blocks with checksums. */
#define CUT_SIZE ((uint64_t)1 << 20)
/* Pieces from here on are worth being read around the page cache by one rank for others. */
#define SHARED_SIZE ((uint64_t)64 << 10)
/* With the piece that begins last in it, no more than is read in a batch. */
#define LOT ((uint64_t)5 << 19)

/* Kinds of data, which are shared separately. */
enum share_kind { SHARE_OBJECTS, SHARE_TENSORS, SHARE_KINDS };

/* A digest, then bytes and pieces of each kind, the rank's host, whether it sees the files, and
 * whether it would read them around the page cache. */
enum {
    AT_HOST = 8 + 16 * SHARE_KINDS,
    AT_SEES = AT_HOST + 8,
    AT_BYPASSES,
    SUMMARY_SIZE,
};

struct agreement {
    const struct load_sharing *sharing;
    struct load_share *shares[SHARE_KINDS]; /* results; NULL: not to be shared */
    dcp_group *group;
    uint32_t rank_count;
    bool coordinates;
    struct buffer mine; /* what this rank wants */
    bool goes_on;       /* sharing may pay */
    bool speaks;        /* for its class */
    bool sees;          /* every file that this rank wants elements of */
    bool bypasses;      /* the page cache, when it reads large tensors */

    /* At the coordinator. */
    struct share_costs costs[SHARE_KINDS];
    uint32_t *class_of;
    uint32_t *speakers; /* by class */
    uint32_t class_count;
    bool all_see; /* else this rank reads what any wants */
    bool any_bypasses;
    uint32_t host_count; /* whose ranks read each other's memory */
};

static struct dcp_collective call_of(const struct agreement *agreement, const char *phase)
{
    struct dcp_collective call = {phase, agreement->sharing->options->timeout_seconds};
    return call;
}

/* Compares the digests of all ranks, in order: each rank gets the class of the first rank with the
 * same digest. */
static void find_classes(struct agreement *agreement, const unsigned char *summaries)
{
    for (uint32_t rank = 0; rank < agreement->rank_count; rank++) {
        uint64_t digest = load_u64(summaries + (size_t)rank * SUMMARY_SIZE);
        uint32_t class = 0;
        while (class < agreement->class_count &&
               load_u64(summaries + (size_t)agreement->speakers[class] * SUMMARY_SIZE) != digest)
            class ++;
        agreement->class_of[rank] = class;
        if (class == agreement->class_count)
            agreement->speakers[agreement->class_count++] = rank;
    }
}

static bool is_shared_storage(const struct load_sharing *sharing)
{
    return (sharing->options->io & DCP_IO_DIRECT) != 0 || shard_reader_is_far(sharing->reader);
}

static bool pays(const struct agreement *agreement, enum share_kind kind)
{
    return agreement->shares[kind] &&
           (!agreement->all_see ||
            agreement->sharing->options->reading == DCP_READING_COOPERATIVE ||
            load_share_pays(&agreement->costs[kind]));
}

static void add_bounded(uint64_t *sum, uint64_t more)
{
    if (__builtin_add_overflow(*sum, more, sum))
        *sum = UINT64_MAX;
}

/* Adds up what all ranks want of a kind, assuming as much overlap as possible. */
static void estimate(struct agreement *agreement, enum share_kind kind,
                     const unsigned char *summaries)
{
    const struct load_sharing *sharing = agreement->sharing;
    struct share_costs *costs = &agreement->costs[kind];
    costs->rank_count = agreement->rank_count;
    costs->host_count = agreement->host_count;
    costs->broadcasts = !group_multicast_is_direct(agreement->group);
    costs->group_rate = sharing->options->group_bytes_per_second;
    costs->storage_is_shared =
        is_shared_storage(sharing) || (kind == SHARE_TENSORS && agreement->any_bypasses);
    for (size_t rank = 0; rank < agreement->rank_count; rank++) {
        const unsigned char *summary = summaries + rank * SUMMARY_SIZE + 8 + 16 * (size_t)kind;
        uint64_t wanted = load_u64(summary), pieces = load_u64(summary + 8);
        add_bounded(&costs->wanted, wanted);
        add_bounded(&costs->reads_wanted, pieces);
        costs->distinct = wanted > costs->distinct ? wanted : costs->distinct;
        costs->reads_distinct = pieces > costs->reads_distinct ? pieces : costs->reads_distinct;
    }
    costs->exchanged = costs->wanted - costs->distinct;
}

static dcp_status count_hosts(struct agreement *agreement, const unsigned char *summaries)
{
    struct host_ranks hosts;
    RETURN_IF_ERROR(host_ranks_new(agreement->rank_count, &hosts));
    host_ranks_join(&hosts, summaries + AT_HOST, SUMMARY_SIZE);
    agreement->host_count = (uint32_t)host_ranks_hosts(&hosts);
    host_ranks_free(&hosts);
    return DCP_OK;
}

static dcp_status hear_summaries(struct agreement *agreement, const struct group_messages *all)
{
    size_t count = agreement->rank_count;
    if (all->offsets[count] != count * SUMMARY_SIZE)
        return dcp_error_set(DCP_ERR_GROUP,
                             "the message of wanted regions has %zu bytes, expected %zu",
                             all->offsets[count], count * (size_t)SUMMARY_SIZE);
    agreement->class_of = memory_allocate_array(count, sizeof *agreement->class_of);
    agreement->speakers = memory_allocate_array(count, sizeof *agreement->speakers);
    if (!agreement->class_of || !agreement->speakers)
        return error_no_memory(count * sizeof *agreement->class_of, "wanted regions of all ranks");
    find_classes(agreement, all->bytes);
    RETURN_IF_ERROR(count_hosts(agreement, all->bytes));
    agreement->all_see = true;
    for (size_t rank = 0; rank < count; rank++) {
        const unsigned char *summary = (const unsigned char *)all->bytes + rank * SUMMARY_SIZE;
        agreement->all_see = agreement->all_see && summary[AT_SEES];
        agreement->any_bypasses = agreement->any_bypasses || summary[AT_BYPASSES];
    }
    for (enum share_kind kind = 0; kind < SHARE_KINDS; kind++) {
        estimate(agreement, kind, all->bytes);
        agreement->goes_on = agreement->goes_on || pays(agreement, kind);
    }
    return DCP_OK;
}

/* Of a kind that reads as often as it has pieces. */
static void summarize(const struct load_sharing *sharing, unsigned char *summary)
{
    const struct load_plan *plan = sharing->plan;
    uint64_t bytes = 0, objects = 0;
    for (size_t i = 0; i < plan->count; i++) {
        const struct metadata_entry *entry = &sharing->metadata->entries[plan->items[i].entry];
        if (entry->is_tensor)
            continue;
        add_bounded(&bytes, entry->pieces[plan->items[i].piece].length);
        objects++;
    }
    store_u64(summary + 8 + 16 * SHARE_OBJECTS, bytes);
    store_u64(summary + 16 + 16 * SHARE_OBJECTS, objects);
    store_u64(summary + 8 + 16 * SHARE_TENSORS, plan->bytes_wanted);
    store_u64(summary + 16 + 16 * SHARE_TENSORS, 0);
}

/* Sends every rank's digest and bytes to the coordinator, which answers which ranks should send
 * their lists. */
static dcp_status exchange_summaries(struct agreement *agreement, dcp_status status)
{
    struct dcp_collective asking = call_of(agreement, "gathering wanted regions");
    struct dcp_collective call = call_of(agreement, "choosing how to read");
    int root = agreement->sharing->options->coordinator;
    unsigned char summary[SUMMARY_SIZE];
    struct group_messages all = {0};
    struct buffer answer, heard;

    buffer_init(&answer, 0);
    buffer_init(&heard, 0);
    store_u64(summary, xxh3_64(agreement->mine.data, agreement->mine.size));
    summarize(agreement->sharing, summary);
    store_u64(summary + AT_HOST, host_memory_host());
    summary[AT_SEES] = agreement->sees;
    summary[AT_BYPASSES] = agreement->bypasses;
    status = group_gather(agreement->group, &asking, root, status, summary, sizeof summary, &all);
    if (agreement->coordinates && status == DCP_OK)
        status = hear_summaries(agreement, &all);
    if (agreement->coordinates && status == DCP_OK) {
        buffer_append_zeros(&answer, agreement->rank_count + (size_t)1);
        status = buffer_status(&answer);
    }
    if (agreement->coordinates && status == DCP_OK) {
        answer.data[0] = agreement->goes_on;
        for (uint32_t class = 0; class < agreement->class_count; class ++)
            answer.data[1 + agreement->speakers[class]] = 1;
    }
    status =
        group_broadcast(agreement->group, &call, root, status, answer.data, answer.size, &heard);
    if (status == DCP_OK && heard.size != agreement->rank_count + (size_t)1)
        status = dcp_error_set(DCP_ERR_GROUP,
                               "the coordinator's answer has %zu bytes, expected %" PRIu32,
                               heard.size, agreement->rank_count + 1);
    if (status == DCP_OK) {
        agreement->goes_on = heard.data[0] != 0;
        agreement->speaks = heard.data[1 + dcp_group_rank(agreement->group)] != 0;
    }
    group_messages_free(&all);
    buffer_free(&answer);
    buffer_free(&heard);
    return status;
}

static dcp_status decode_wants(const struct agreement *agreement, const struct group_messages *all,
                               struct share_wants *wants)
{
    for (uint32_t class = 0; class < agreement->class_count; class ++) {
        uint32_t rank = agreement->speakers[class];
        dcp_status status = share_wants_decode(all->bytes + all->offsets[rank],
                                               all->offsets[rank + 1] - all->offsets[rank],
                                               agreement->sharing->metadata, &wants[class]);
        if (status != DCP_OK)
            return error_prefix(status, "rank %" PRIu32, rank);
    }
    return DCP_OK;
}

/* Whether parts can be checked separately: looks at one file, as files of one save are alike. One
 * that cannot be opened, also for want of memory, counts as without: then whole records are
 * checked. */
static bool has_blocks(const struct load_sharing *sharing)
{
    const struct load_plan *plan = sharing->plan;
    for (size_t i = 0; i < plan->count; i++) {
        const struct metadata_entry *entry = &sharing->metadata->entries[plan->items[i].entry];
        const struct metadata_piece *piece = &entry->pieces[plan->items[i].piece];
        if (entry->is_tensor && metadata_is_in_stream(piece))
            return shard_reader_has_blocks(sharing->reader, piece->file);
    }
    return false;
}

/* The coordinator, which has read the metadata, as the holder of every file. NULL: no memory. */
static uint32_t *hold_all(const struct agreement *agreement)
{
    const struct load_sharing *sharing = agreement->sharing;
    size_t count = sharing->metadata->file_count;
    uint32_t *holders = memory_allocate_array(count, sizeof *holders);
    for (size_t i = 0; holders && i < count; i++)
        holders[i] = (uint32_t)sharing->options->coordinator;
    return holders;
}

/* Assigns the readers of a kind; an empty result means that each rank reads for itself. */
static dcp_status deal_out(struct agreement *agreement, enum share_kind kind,
                           const struct share_wants *wants, struct buffer *answer)
{
    const struct load_sharing *sharing = agreement->sharing;
    struct share_costs *costs = &agreement->costs[kind];
    uint32_t *holders = agreement->all_see ? NULL : hold_all(agreement);
    if (!agreement->all_see && !holders)
        return error_no_memory(sharing->metadata->file_count * sizeof *holders, "readers of files");
    const struct share_rules rules = {
        .objects = kind == SHARE_OBJECTS,
        .holders = holders,
        .verification = sharing->options->verification,
        .blocks = kind == SHARE_TENSORS && sharing->options->verification != DCP_VERIFY_NONE &&
                  has_blocks(sharing),
        .cut_size = CUT_SIZE,
        .lot = LOT,
        .striped_size = SHARED_SIZE,
        .long_run = costs->storage_is_shared && !holders ? SHARD_LARGE : 0,
        .receive_bytes = EXCHANGE_RECEIVE_BYTES,
        .largest_window = EXCHANGE_LOT_BYTES,
    };
    struct load_share share;
    dcp_status status = load_share_make(sharing->metadata, wants, agreement->class_count,
                                        agreement->class_of, agreement->rank_count, &rules, &share);
    costs->wanted = share.bytes_wanted;
    costs->distinct = share.bytes_distinct;
    costs->exchanged = share.bytes_exchanged;
    costs->reads_wanted = share.objects_wanted;
    costs->reads_distinct = share.objects_distinct;
    if (status == DCP_OK && pays(agreement, kind) && share.run_count != 0)
        status = load_share_encode(&share, sharing->metadata, answer);
    load_share_free(&share);
    memory_release(holders);
    return status;
}

/* Appends the answers for all kinds, each after its size. */
static dcp_status answer_wants(struct agreement *agreement, const struct share_wants *wants,
                               struct buffer *answer)
{
    for (enum share_kind kind = 0; kind < SHARE_KINDS; kind++) {
        size_t start = answer->size;
        buffer_append_u64(answer, 0);
        RETURN_IF_ERROR(buffer_status(answer));
        if (pays(agreement, kind))
            RETURN_IF_ERROR(deal_out(agreement, kind, wants, answer));
        store_u64(answer->data + start, answer->size - start - 8);
    }
    return DCP_OK;
}

static dcp_status hear_answer(const struct agreement *agreement, const struct buffer *heard)
{
    struct reader reader;
    reader_init(&reader, heard->data, heard->size);
    for (enum share_kind kind = 0; kind < SHARE_KINDS; kind++) {
        uint64_t size = reader_u64(&reader);
        const void *bytes = size <= SIZE_MAX ? reader_bytes(&reader, (size_t)size) : NULL;
        if (reader.failed || !bytes || (size != 0 && !agreement->shares[kind]))
            return dcp_error_set(
                DCP_ERR_GROUP,
                "the coordinator's message on which rank reads which region ends too early");
        if (size != 0)
            RETURN_IF_ERROR(load_share_decode(bytes, (size_t)size, agreement->sharing->metadata,
                                              agreement->rank_count, agreement->shares[kind]));
    }
    return DCP_OK;
}

static dcp_status hear_wants(struct agreement *agreement, const struct group_messages *all,
                             struct buffer *answer)
{
    size_t count = agreement->class_count;
    struct share_wants *wants = memory_allocate_zeroed(count, sizeof *wants);
    if (!wants)
        return error_no_memory(count * sizeof *wants, "wanted regions of all ranks");
    dcp_status status = decode_wants(agreement, all, wants);
    if (status == DCP_OK)
        status = answer_wants(agreement, wants, answer);
    for (size_t class = 0; class < count; class ++)
        share_wants_free(&wants[class]);
    memory_release(wants);
    return status;
}

/* Sends what each class wants to the coordinator, which answers with the assignment of readers. */
static dcp_status exchange_wants(struct agreement *agreement)
{
    struct dcp_collective asking = call_of(agreement, "gathering wanted regions");
    struct dcp_collective call = call_of(agreement, "sharing the assignment of readers");
    int root = agreement->sharing->options->coordinator;
    struct group_messages all = {0};
    struct buffer answer, heard;

    buffer_init(&answer, 0);
    buffer_init(&heard, 0);
    dcp_status status = group_gather(agreement->group, &asking, root, DCP_OK, agreement->mine.data,
                                     agreement->speaks ? agreement->mine.size : 0, &all);
    if (agreement->coordinates && status == DCP_OK)
        status = hear_wants(agreement, &all, &answer);
    status =
        group_broadcast(agreement->group, &call, root, status, answer.data, answer.size, &heard);
    if (status == DCP_OK)
        status = hear_answer(agreement, &heard);
    group_messages_free(&all);
    buffer_free(&answer);
    buffer_free(&heard);
    return status;
}

/* Ranks agree on the result, as any of them may lack memory for it. */
static dcp_status settle(struct agreement *agreement, struct load_plan *rest)
{
    const struct load_sharing *sharing = agreement->sharing;
    const struct load_share *tensors = agreement->shares[SHARE_TENSORS];
    const struct dcp_collective call = call_of(agreement, "choosing how to read");
    dcp_status status = exchange_wants(agreement);
    if (status == DCP_OK && tensors->run_count != 0)
        status = load_share_rest(tensors, (uint32_t)dcp_group_rank(agreement->group), sharing->plan,
                                 sharing->metadata, rest);
    return group_agree(agreement->group, &call, status);
}

/* Whether this rank sees what it wants, as the rank that described it; who has read the metadata by
 * itself does. */
static bool sees_files(const struct load_sharing *sharing)
{
    const struct metadata *metadata = sharing->metadata;
    uint32_t before = UINT32_MAX;
    for (size_t i = 0; metadata->file_sizes && i < sharing->plan->count; i++) {
        const struct metadata_entry *entry = &metadata->entries[sharing->plan->items[i].entry];
        uint32_t file = entry->pieces[sharing->plan->items[i].piece].file;
        if (!entry->is_tensor || file == before)
            continue;
        if (!shard_reader_sees(sharing->reader, file))
            return false;
        before = file;
    }
    return true;
}

/* Looks at the first tensor that is not small: files of one save are alike. */
static bool bypasses_cache(const struct load_sharing *sharing)
{
    for (size_t i = 0; i < sharing->plan->count; i++) {
        const struct metadata_entry *entry =
            &sharing->metadata->entries[sharing->plan->items[i].entry];
        const struct metadata_piece *piece = &entry->pieces[sharing->plan->items[i].piece];
        const struct tensor_view *view = piece->view;
        if (!entry->is_tensor || (!view && !metadata_is_in_stream(piece)))
            continue;
        if ((view ? view->data_length : piece->length) >= SHARED_SIZE)
            return shard_reader_bypasses_cache(sharing->reader, piece->file,
                                               view ? view->data_offset : piece->offset);
    }
    return false;
}

dcp_status load_share_agree(const struct load_sharing *sharing, dcp_status mine,
                            struct load_share *objects, struct load_share *tensors,
                            struct load_plan *rest)
{
    dcp_group *group = sharing->options->group;
    struct agreement agreement = {
        .sharing = sharing,
        .shares = {[SHARE_OBJECTS] = objects, [SHARE_TENSORS] = tensors},
        .group = group,
        .rank_count = (uint32_t)dcp_group_size(group),
        .coordinates = dcp_group_rank(group) == sharing->options->coordinator,
    };

    *tensors = (struct load_share){0};
    *rest = (struct load_plan){0};
    if (objects)
        *objects = (struct load_share){0};
    if (agreement.rank_count == 1 || sharing->options->reading == DCP_READING_DIRECT)
        return mine;
    buffer_init(&agreement.mine, 0);
    agreement.sees = mine != DCP_OK || sees_files(sharing);
    agreement.bypasses = mine == DCP_OK && agreement.sees && bypasses_cache(sharing);
    if (mine == DCP_OK)
        mine =
            share_wants_encode(sharing->plan, sharing->metadata, agreement.sees, &agreement.mine);
    dcp_status status = exchange_summaries(&agreement, mine);
    if (status == DCP_OK && agreement.goes_on)
        status = settle(&agreement, rest);
    buffer_free(&agreement.mine);
    memory_release(agreement.class_of);
    memory_release(agreement.speakers);
    return status;
}
