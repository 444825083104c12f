/* SPDX-License-Identifier: BSD-3-Clause */
/* Rounds of an exchange. In each, every rank that has some left sends a window, and every rank puts
 * the windows that it gets where they belong, its own among them. All ranks know all windows, so
 * nothing is said but the bytes themselves; a rank that fails goes on sending, so that nobody waits
 * for it, until the next agreement, which ends the load for all. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/load_sharing.h"
#include "group/group.h"

enum { ROUNDS_PER_AGREEMENT = 8, ALIGNMENT = 16 };

/* What a rank sends in a round. */
struct passage {
    struct share_cursor start;
    struct share_cursor next;
    uint32_t set;
};

struct exchange {
    const struct load_sharing *sharing;
    const struct load_share *share;
    struct dcp_collective call;
    uint32_t rank;
    struct load_lots *lots;
    struct passage *passages; /* by rank, as all that follow */
    size_t *sizes;
    size_t *places;
    bool *to;
    bool *from;
    uint32_t set; /* whose ranks are marked in `to`; set_count: none yet */
    unsigned char *received;
    void *scratch;
    uint32_t *items; /* the plan's, by entry and piece */
    uint64_t moved;
    uint64_t received_bytes;
};

static int compare_items(const void *left, const void *right, void *context)
{
    const struct load_plan *plan = context;
    const struct read_item *a = &plan->items[*(const uint32_t *)left];
    const struct read_item *b = &plan->items[*(const uint32_t *)right];
    if (a->entry != b->entry)
        return a->entry < b->entry ? -1 : 1;
    return a->piece < b->piece ? -1 : a->piece > b->piece;
}

static dcp_status index_items(struct exchange *exchange)
{
    const struct load_plan *plan = exchange->sharing->plan;
    exchange->items = memory_allocate_array(plan->count, sizeof *exchange->items);
    if (!exchange->items)
        return error_no_memory(plan->count * sizeof *exchange->items, "an index of a load plan");
    for (size_t i = 0; i < plan->count; i++)
        exchange->items[i] = (uint32_t)i;
    if (plan->count > 1)
        qsort_r(exchange->items, plan->count, sizeof *exchange->items, compare_items, (void *)plan);
    return DCP_OK;
}

/* The first item of a piece, or of a later one. */
static size_t find_items(const struct exchange *exchange, uint32_t entry, uint32_t piece)
{
    const struct load_plan *plan = exchange->sharing->plan;
    size_t low = 0, high = plan->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct read_item *item = &plan->items[exchange->items[middle]];
        if (item->entry < entry || (item->entry == entry && item->piece < piece))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Puts a box of an atom into every chunk of this rank that wants it. */
static dcp_status place_box(struct exchange *exchange, const struct share_atom *atom,
                            struct box box, const unsigned char *bytes)
{
    const struct load_sharing *sharing = exchange->sharing;
    const struct metadata_entry *entry = &sharing->metadata->entries[atom->entry];
    uint64_t elements = (uint64_t)box_volume(box);
    for (size_t at = find_items(exchange, atom->entry, atom->piece); at < sharing->plan->count;
         at++) {
        const struct read_item *item = &sharing->plan->items[exchange->items[at]];
        if (item->entry != atom->entry || item->piece != atom->piece)
            break;
        if (!box_contains(item->region, box))
            continue;
        const struct state_tensor *tensor = sharing->flat->entries[item->wanted].node->as.tensor;
        RETURN_IF_ERROR(shard_place_region(entry, box, bytes, box, tensor->dtype,
                                           &tensor->chunks[item->chunk]));
        exchange->moved += elements * dcp_dtype_size(tensor->dtype);
        RETURN_IF_ERROR(progress_add(sharing->progress, elements * dcp_dtype_size(entry->dtype)));
    }
    return DCP_OK;
}

static dcp_status place_segment(struct exchange *exchange, const struct share_segment *segment,
                                const unsigned char *bytes, uint64_t *payload)
{
    const struct share_atom *atom = &exchange->share->atoms[segment->run->atom];
    const struct box whole = atom->region;
    size_t size = dcp_dtype_size(exchange->sharing->metadata->entries[atom->entry].dtype);
    for (int64_t from = segment->from; from < segment->end;) {
        struct box_storage box;
        int64_t taken =
            shape_next_box(whole.ndim, whole.sizes, from, segment->end, box.offsets, box.sizes);
        for (int32_t i = 0; i < whole.ndim; i++)
            box.offsets[i] += whole.offsets[i];
        RETURN_IF_ERROR(place_box(exchange, atom, box_of(whole.ndim, &box), bytes));
        bytes += (size_t)taken * size;
        *payload += (uint64_t)taken * size;
        from += taken;
    }
    return DCP_OK;
}

/* Puts a window of a rank where it belongs. */
static dcp_status place_window(struct exchange *exchange, uint32_t rank, const unsigned char *bytes)
{
    struct share_cursor cursor = exchange->passages[rank].start;
    struct share_window window = {0};
    struct share_segment segment;
    uint64_t payload = 0;
    while (
        share_window_next(exchange->share, exchange->sharing->metadata, &window, &cursor, &segment))
        RETURN_IF_ERROR(place_segment(exchange, &segment, bytes + segment.place, &payload));
    if (rank != exchange->rank)
        exchange->received_bytes += payload;
    return DCP_OK;
}

/* Finds out what everybody sends in the next round; false: nobody has anything left. */
static bool plan_round(struct exchange *exchange)
{
    const struct load_share *share = exchange->share;
    size_t place = 0;
    bool any = false;
    for (uint32_t rank = 0; rank < share->rank_count; rank++) {
        struct passage *passage = &exchange->passages[rank];
        struct share_window window = {0};
        struct share_segment segment;
        passage->start = passage->next;
        while (share_window_next(share, exchange->sharing->metadata, &window, &passage->next,
                                 &segment))
            any = true;
        passage->set = window.set;
        exchange->sizes[rank] = window.bytes;
        exchange->from[rank] = window.begun && rank != exchange->rank &&
                               load_share_wants(share, window.set, exchange->rank);
        exchange->places[rank] = place;
        if (exchange->from[rank])
            place += (window.bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return any;
}

static void mark_receivers(struct exchange *exchange)
{
    uint32_t set = exchange->passages[exchange->rank].set;
    if (exchange->sizes[exchange->rank] == 0 || set == exchange->set)
        return;
    exchange->set = set;
    for (uint32_t rank = 0; rank < exchange->share->rank_count; rank++)
        exchange->to[rank] = rank != exchange->rank && load_share_wants(exchange->share, set, rank);
}

static dcp_status place_round(struct exchange *exchange, const unsigned char *own)
{
    for (uint32_t rank = 0; rank < exchange->share->rank_count; rank++)
        if (exchange->from[rank])
            RETURN_IF_ERROR(
                place_window(exchange, rank, exchange->received + exchange->places[rank]));
    return exchange->sizes[exchange->rank] != 0 ? place_window(exchange, exchange->rank, own)
                                                : DCP_OK;
}

/* One round. *mine: this rank's own state, which others learn of later; a failure that is returned
 * is of the group itself. */
static dcp_status run_round(struct exchange *exchange, dcp_status *mine)
{
    struct error_story story;
    const unsigned char *own = NULL;
    mark_receivers(exchange);
    if (*mine == DCP_OK && exchange->sizes[exchange->rank] != 0)
        *mine = load_lots_next(exchange->lots, exchange->sizes[exchange->rank], &own);
    else if (exchange->sizes[exchange->rank] != 0)
        load_lots_next(exchange->lots, exchange->sizes[exchange->rank], &own);
    error_save(&story);
    const struct group_multicast multicast = {
        .sizes = exchange->sizes,
        .send = own,
        .to = exchange->to,
        .from = exchange->from,
        .received = exchange->received,
        .places = exchange->places,
        .scratch = exchange->scratch,
    };
    dcp_status status =
        group_multicast(exchange->sharing->options->group, &exchange->call, &multicast);
    if (*mine != DCP_OK)
        error_restore(&story);
    if (status != DCP_OK)
        return *mine != DCP_OK ? *mine : status;
    if (*mine == DCP_OK)
        *mine = place_round(exchange, own);
    return DCP_OK;
}

static dcp_status agree(const struct exchange *exchange, dcp_status mine)
{
    return group_agree(exchange->sharing->options->group, &exchange->call, mine);
}

/* Where another group carries the bytes, all can still hear that it failed: others come as soon as
 * they, too, have given up waiting for bytes. */
static dcp_status agree_to_fail(struct exchange *exchange, dcp_status mine)
{
    exchange->call.timeout_seconds *= 2;
    return agree(exchange, mine);
}

static dcp_status run_rounds(struct exchange *exchange)
{
    dcp_status mine = DCP_OK;
    for (unsigned round = 1; plan_round(exchange); round++) {
        dcp_status status = run_round(exchange, &mine);
        if (status != DCP_OK)
            return agree_to_fail(exchange, status);
        if (round % ROUNDS_PER_AGREEMENT == 0)
            RETURN_IF_ERROR(agree(exchange, mine));
    }
    return agree(exchange, mine);
}

/* Ranks that this one gets something from. */
static size_t count_senders(const struct exchange *exchange)
{
    const struct load_share *share = exchange->share;
    size_t count = 0;
    for (uint32_t rank = 0; rank < share->rank_count; rank++) {
        uint32_t at = rank == exchange->rank ? (uint32_t)share->run_count : share->first[rank];
        while (at < share->run_count &&
               !load_share_wants(share, share->atoms[share->runs[at].atom].set, exchange->rank))
            at = share->next[at];
        count += at < share->run_count;
    }
    return count;
}

static dcp_status prepare(struct exchange *exchange)
{
    const struct load_share *share = exchange->share;
    size_t ranks = share->rank_count;
    size_t received = count_senders(exchange) * share->window;
    size_t scratch = group_multicast_scratch(exchange->sharing->options->group, share->window);
    exchange->passages = memory_allocate_zeroed(ranks, sizeof *exchange->passages);
    exchange->sizes = memory_allocate_zeroed(ranks, sizeof *exchange->sizes);
    exchange->places = memory_allocate_zeroed(ranks, sizeof *exchange->places);
    exchange->to = memory_allocate_zeroed(ranks, sizeof *exchange->to);
    exchange->from = memory_allocate_zeroed(ranks, sizeof *exchange->from);
    exchange->received = memory_allocate(received);
    exchange->scratch = memory_allocate(scratch);
    if (!exchange->passages || !exchange->sizes || !exchange->places || !exchange->to ||
        !exchange->from || !exchange->received || !exchange->scratch)
        return error_no_memory(received + scratch, "what comes from other ranks");
    for (uint32_t rank = 0; rank < ranks; rank++)
        exchange->passages[rank].next = share_cursor_start(share, rank);
    RETURN_IF_ERROR(index_items(exchange));
    return load_lots_open(exchange->sharing, share, &exchange->lots);
}

static void release(struct exchange *exchange)
{
    load_lots_close(exchange->lots);
    memory_release(exchange->passages);
    memory_release(exchange->sizes);
    memory_release(exchange->places);
    memory_release(exchange->to);
    memory_release(exchange->from);
    memory_release(exchange->received);
    memory_release(exchange->scratch);
    memory_release(exchange->items);
}

dcp_status load_exchange(const struct load_sharing *sharing, const struct load_share *share,
                         uint64_t *moved, uint64_t *received)
{
    struct exchange exchange = {
        .sharing = sharing,
        .share = share,
        .call = {"sharing what was read", sharing->options->timeout_seconds},
        .rank = (uint32_t)dcp_group_rank(sharing->options->group),
        .set = (uint32_t)share->set_count,
    };
    if (share->run_count == 0)
        return DCP_OK;
    dcp_status status = agree(&exchange, prepare(&exchange));
    if (status == DCP_OK)
        status = run_rounds(&exchange);
    release(&exchange);
    *moved += exchange.moved;
    *received += exchange.received_bytes;
    return status;
}
