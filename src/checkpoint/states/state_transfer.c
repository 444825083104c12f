/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends the pieces of a tree to the ranks that want them: an exchange whose storage is memory. Rank
 * 0 gathers what all ranks want, and assigns the senders. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/stream_copy.h"
#include "checkpoint/share/load_exchange.h"
#include "checkpoint/states/state_catalog.h"
#include "format/streams/item.h"
#include "group/group.h"
#include "state/box.h"

/* At rank 0: what ranks want. Those that want the same are a class. */
struct wishes {
    uint32_t rank_count;
    uint32_t *class_of;
    uint32_t *speakers; /* by class */
    struct share_wants *wants;
    uint32_t class_count;
    uint32_t *holders; /* by file of the whole */
};

static struct dcp_collective call_of(const struct state_transfer *transfer, const char *phase)
{
    return (struct dcp_collective){phase, transfer->options->timeout_seconds};
}

static dcp_status put_stream(void *context, const struct read_item *item,
                             const unsigned char *bytes, size_t size)
{
    const struct state_transfer *transfer = context;
    dcp_state *object, *target = transfer->flat->entries[item->wanted].node;
    struct state_pool *pool = state_pool_new(target->root);
    if (!pool)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = item_read_object(byte_source_memory(bytes, size), pool, &object);
    if (status == DCP_OK)
        status = node_replace(target, pool, object);
    if (status == DCP_OK)
        return DCP_OK;
    state_pool_free(pool);
    return error_prefix(status, "%s", transfer->whole->entries[item->entry].name);
}

static dcp_status read_elements(const struct metadata_entry *entry,
                                const struct catalog_source *source, struct box region,
                                int64_t from, int64_t end, unsigned char *bytes)
{
    const struct state_tensor *tensor = source->node->as.tensor;
    const struct box chunk = {tensor->ndim, source->chunk->offsets, source->chunk->sizes};
    if (tensor->dtype != entry->dtype || !box_contains(chunk, region))
        return dcp_error_set(DCP_ERR_INTERNAL, "a requested chunk is not this rank's");
    while (from < end) {
        struct box_storage box;
        int64_t taken = box_next(region, from, end, &box);
        RETURN_IF_ERROR(state_catalog_read(source, box_of(region.ndim, &box), bytes));
        bytes += (size_t)taken * dcp_dtype_size(entry->dtype);
        from += taken;
    }
    return DCP_OK;
}

static dcp_status read_run(const struct state_transfer *transfer, const struct share_region *region,
                           int64_t from, int64_t end, unsigned char *bytes)
{
    const struct metadata_entry *entry = &transfer->whole->entries[region->entry];
    const struct metadata_piece *piece = &entry->pieces[region->piece];
    const struct state_catalog *mine = transfer->mine;
    if (!mine || piece->offset >= mine->count)
        return dcp_error_set(DCP_ERR_INTERNAL, "a requested piece is not on this rank");
    const struct catalog_source *source = &mine->sources[piece->offset];
    if (entry->is_tensor && source->chunk)
        return read_elements(entry, source, region->box, from, end, bytes);
    if (entry->is_tensor || source->chunk || source->stream > mine->streams.size ||
        (uint64_t)end > mine->streams.size - source->stream)
        return dcp_error_set(DCP_ERR_INTERNAL, "a requested object is not this rank's");
    memcpy(bytes, mine->streams.data + source->stream + from, (size_t)(end - from));
    return DCP_OK;
}

/* The reader of an exchange. */
struct held_runs {
    const struct state_transfer *transfer;
    const struct load_share *share;
};

static dcp_status read_held(void *context, struct share_target *targets, size_t count,
                            const struct share_span *next)
{
    const struct held_runs *held = context;
    const struct share_span *span = &targets[0].span;
    const struct share_region *region = &held->share->regions[span->run->region];
    const struct metadata_entry *entry = &held->transfer->whole->entries[region->entry];
    dcp_status status = read_run(held->transfer, region, span->from, span->end, targets[0].bytes);
    if (status == DCP_OK && targets[0].also)
        stream_copy(targets[0].also, targets[0].bytes,
                    (size_t)(span->end - span->from) * share_element_size(entry));
    (void)count;
    (void)next;
    return status == DCP_OK ? DCP_OK : error_prefix(status, "%s", entry->name);
}

static void find_classes(struct wishes *wishes, const struct group_messages *all)
{
    for (uint32_t rank = 0; rank < wishes->rank_count; rank++) {
        const unsigned char *mine = all->bytes + all->offsets[rank];
        size_t size = all->offsets[rank + 1] - all->offsets[rank];
        uint32_t class = 0;
        for (; class < wishes->class_count; class ++) {
            uint32_t other = wishes->speakers[class];
            if (all->offsets[other + 1] - all->offsets[other] == size &&
                memcmp(all->bytes + all->offsets[other], mine, size) == 0)
                break;
        }
        wishes->class_of[rank] = class;
        if (class == wishes->class_count)
            wishes->speakers[wishes->class_count++] = rank;
    }
}

static dcp_status hear_wishes(const struct state_transfer *transfer,
                              const struct group_messages *all, struct wishes *wishes)
{
    const struct metadata *whole = transfer->whole;
    size_t ranks = (size_t)all->count;
    *wishes = (struct wishes){.rank_count = (uint32_t)ranks};
    wishes->class_of = memory_allocate_array(ranks, sizeof *wishes->class_of);
    wishes->speakers = memory_allocate_array(ranks, sizeof *wishes->speakers);
    wishes->wants = memory_allocate_zeroed(ranks, sizeof *wishes->wants);
    wishes->holders = memory_allocate_array(whole->file_count, sizeof *wishes->holders);
    if (!wishes->class_of || !wishes->speakers || !wishes->wants || !wishes->holders)
        return error_no_memory(ranks * sizeof *wishes->wants, "wanted pieces of all ranks");
    for (size_t file = 0; file < whole->file_count; file++)
        wishes->holders[file] = (uint32_t)state_catalog_owner(whole, (uint32_t)file);
    find_classes(wishes, all);
    for (uint32_t class = 0; class < wishes->class_count; class ++) {
        uint32_t rank = wishes->speakers[class];
        dcp_status status = share_wants_decode(all->bytes + all->offsets[rank],
                                               all->offsets[rank + 1] - all->offsets[rank], whole,
                                               &wishes->wants[class]);
        if (status != DCP_OK)
            return error_prefix(status, "rank %" PRIu32, rank);
    }
    return DCP_OK;
}

static void wishes_free(struct wishes *wishes)
{
    for (uint32_t class = 0; class < wishes->class_count && wishes->wants; class ++)
        share_wants_free(&wishes->wants[class]);
    memory_release(wishes->class_of);
    memory_release(wishes->speakers);
    memory_release(wishes->wants);
    memory_release(wishes->holders);
}

static dcp_status assign_readers(const struct state_transfer *transfer, const struct wishes *wishes,
                                 bool objects, struct buffer *answer)
{
    const struct share_rules rules = {
        .objects = objects,
        .holders = wishes->holders,
        .receive_bytes = EXCHANGE_RECEIVE_BYTES,
        .largest_window = EXCHANGE_LOT_BYTES,
    };
    struct load_share share;
    dcp_status status = load_share_make(transfer->whole, wishes->wants, wishes->class_count,
                                        wishes->class_of, wishes->rank_count, &rules, &share);
    if (status == DCP_OK)
        status = load_share_encode(&share, transfer->whole, answer);
    load_share_free(&share);
    return status;
}

/* Checks that rank 0's assignment has everything that this rank wants. */
static dcp_status check_all_comes(const struct state_transfer *transfer,
                                  const struct load_share *share, bool objects)
{
    uint32_t rank = (uint32_t)dcp_group_rank(transfer->options->group);
    const struct load_plan *plan = transfer->plan;
    struct load_plan rest = {0};
    dcp_status status = load_share_rest(share, rank, plan, transfer->whole, &rest);
    const struct load_plan *left = objects ? plan : &rest;
    for (size_t i = 0; i < left->count && status == DCP_OK; i++) {
        const struct metadata_entry *entry = &transfer->whole->entries[left->items[i].entry];
        if (entry->is_tensor == objects ||
            (objects && load_share_brings(share, rank, left->items[i].entry)))
            continue;
        status = dcp_error_set(DCP_ERR_GROUP, "%s: no rank sends a piece that this rank wants",
                               entry->name);
    }
    load_plan_free(&rest);
    return status;
}

/* Tensors or objects. */
static dcp_status pass_on(const struct state_transfer *transfer, const struct wishes *wishes,
                          bool objects)
{
    dcp_group *group = transfer->options->group;
    const struct dcp_collective call = call_of(transfer, "sharing the assignment of senders");
    struct load_share share = {0};
    const struct held_runs held = {transfer, &share};
    const struct load_exchange exchange = {
        .group = group,
        .call = call_of(transfer, "exchanging pieces of a state"),
        .metadata = transfer->whole,
        .share = &share,
        .flat = transfer->flat,
        .plan = transfer->plan,
        .read = read_held,
        .read_context = (void *)&held,
        .take = objects ? put_stream : NULL,
        .take_context = (void *)transfer,
    };
    struct buffer answer, heard;
    uint64_t moved = 0, received = 0;
    buffer_init(&answer, 0);
    buffer_init(&heard, 0);
    dcp_status status = DCP_OK;
    if (dcp_group_rank(group) == 0)
        status = assign_readers(transfer, wishes, objects, &answer);
    status = group_broadcast(group, &call, 0, status, answer.data, answer.size, &heard);
    if (status == DCP_OK)
        status = load_share_decode(heard.data, heard.size, transfer->whole,
                                   (uint32_t)dcp_group_size(group), &share);
    if (status == DCP_OK)
        status = check_all_comes(transfer, &share, objects);
    buffer_free(&answer);
    buffer_free(&heard);
    status = group_agree(group, &call, status);
    if (status == DCP_OK)
        status = load_exchange_run(&exchange, DCP_OK, &moved, &received);
    load_share_free(&share);
    return status;
}

dcp_status state_transfer_run(const struct state_transfer *transfer, dcp_status status)
{
    dcp_group *group = transfer->options->group;
    const struct dcp_collective call = call_of(transfer, "gathering wanted pieces of a state");
    struct group_messages all = {0};
    struct wishes wishes = {0};
    struct buffer mine;
    buffer_init(&mine, 0);
    if (status == DCP_OK)
        status = share_wants_encode(transfer->plan, transfer->whole, true, &mine);
    status = group_gather(group, &call, 0, status, mine.data, mine.size, &all);
    if (status == DCP_OK && dcp_group_rank(group) == 0)
        status = hear_wishes(transfer, &all, &wishes);
    group_messages_free(&all);
    buffer_free(&mine);
    status = group_agree(group, &call, status);
    if (status == DCP_OK)
        status = pass_on(transfer, &wishes, true);
    if (status == DCP_OK)
        status = pass_on(transfer, &wishes, false);
    wishes_free(&wishes);
    return status;
}
