/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/share/share_round.h"

#include "base/error.h"
#include "base/memory.h"

uint64_t share_round_memory(uint32_t rank_count)
{
    const struct share_round *round;
    return share_routes_memory(rank_count) +
           (uint64_t)rank_count *
               (sizeof *round->passages + sizeof *round->sizes + sizeof *round->places);
}

dcp_status share_round_open(const struct load_exchange *exchange,
                            const struct share_destinations *put, struct share_round *round)
{
    uint32_t ranks = exchange->share->rank_count;
    *round = (struct share_round){.exchange = exchange, .put = put};
    round->passages = memory_allocate_zeroed(ranks, sizeof *round->passages);
    round->sizes = memory_allocate_zeroed(ranks, sizeof *round->sizes);
    round->places = memory_allocate_zeroed(ranks, sizeof *round->places);
    if (!round->passages || !round->sizes || !round->places)
        return error_no_memory((size_t)share_round_memory(ranks), "windows of other ranks");
    for (uint32_t rank = 0; rank < ranks; rank++)
        round->passages[rank].next = share_cursor_start(exchange->share, rank);
    return share_routes_open(exchange->share, (uint32_t)dcp_group_rank(exchange->group),
                             &round->routes);
}

void share_round_close(struct share_round *round)
{
    share_routes_close(&round->routes);
    memory_release(round->passages);
    memory_release(round->sizes);
    memory_release(round->places);
}

/* Finds what a rank sends; false: it has no data left. */
static bool plan_passage(struct share_round *round, uint32_t rank)
{
    const struct load_share *share = round->exchange->share;
    struct share_passage *passage = &round->passages[rank];
    struct share_window window = {0};
    struct share_segment segment, first = {0};
    size_t count = 0;
    passage->start = passage->next;
    while (share_window_next(share, round->exchange->metadata, &window, &passage->next, &segment))
        first = count++ == 0 ? segment : first;
    passage->run = first.run;
    passage->set = window.set;
    round->sizes[rank] = window.bytes;
    passage->place = NULL;
    if (count == 1 && load_share_wants(share, window.set, round->routes.rank))
        passage->place = share_destinations_place(round->put, first.run, first.from);
    if (count > 0)
        share_routes_add(&round->routes, rank, window.set);
    return count > 0;
}

bool share_round_next(struct share_round *round, unsigned char *received)
{
    const struct share_routes *routes = &round->routes;
    bool any = false;
    share_routes_begin(&round->routes);
    for (uint32_t rank = 0; rank < round->exchange->share->rank_count; rank++) {
        any = plan_passage(round, rank) || any;
        round->places[rank] = round->passages[rank].place;
        if (!routes->from[rank] || (round->places[rank] && !routes->shared[rank]))
            continue;
        round->places[rank] = received;
        received += (round->sizes[rank] + SHARE_MESSAGE_ALIGNMENT - 1) / SHARE_MESSAGE_ALIGNMENT *
                    SHARE_MESSAGE_ALIGNMENT;
    }
    return any;
}
