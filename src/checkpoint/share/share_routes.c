/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/share/share_routes.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"

uint64_t share_routes_memory(uint32_t rank_count)
{
    const struct share_routes *routes;
    return (uint64_t)rank_count *
           (sizeof *routes->to + sizeof *routes->from + sizeof *routes->shared +
            sizeof *routes->holders + sizeof *routes->meets + sizeof *routes->passes);
}

dcp_status share_routes_open(const struct load_share *share, uint32_t rank,
                             struct share_routes *routes)
{
    size_t ranks = share->rank_count;
    *routes =
        (struct share_routes){.share = share, .rank = rank, .set = (uint32_t)share->set_count};
    routes->to = memory_allocate_zeroed(ranks, sizeof *routes->to);
    routes->from = memory_allocate_zeroed(ranks, sizeof *routes->from);
    routes->shared = memory_allocate_zeroed(ranks, sizeof *routes->shared);
    routes->holders = memory_allocate_zeroed(ranks, sizeof *routes->holders);
    routes->meets = memory_allocate_zeroed(ranks, sizeof *routes->meets);
    routes->passes = memory_allocate_zeroed(ranks, sizeof *routes->passes);
    if (!routes->to || !routes->from || !routes->shared || !routes->holders || !routes->meets ||
        !routes->passes)
        return error_no_memory((size_t)share_routes_memory(share->rank_count),
                               "ways to other ranks");
    return DCP_OK;
}

void share_routes_close(struct share_routes *routes)
{
    memory_release(routes->to);
    memory_release(routes->from);
    memory_release(routes->shared);
    memory_release(routes->holders);
    memory_release(routes->meets);
    memory_release(routes->passes);
}

/* Those of some ranks of a host that want what is in a set. */
struct takers {
    size_t count;
    uint32_t receiver; /* to which it is sent for all; if there are any */
};

static bool wants(const struct share_routes *routes, uint32_t set, int rank)
{
    return load_share_wants(routes->share, set, (uint32_t)rank);
}

/* The windows of different readers have different receivers, as far as there are. */
static struct takers takers_of(const struct share_routes *routes, uint32_t reader, uint32_t set,
                               const int *ranks, size_t count)
{
    struct takers takers = {.count = 0};
    for (size_t i = 0; i < count; i++)
        takers.count += wants(routes, set, ranks[i]);
    size_t before = takers.count != 0 ? reader % takers.count : 0;
    for (size_t i = 0; i < count && takers.count != 0; i++) {
        takers.receiver = (uint32_t)ranks[i];
        if (wants(routes, set, ranks[i]) && before-- == 0)
            break;
    }
    return takers;
}

/* Finds the ranks of other hosts to which this rank's window is sent. */
static void mark_receivers(struct share_routes *routes, uint32_t set)
{
    const int *ranks;
    memset(routes->to, 0, routes->share->rank_count * sizeof *routes->to);
    for (uint32_t rank = 0; rank < routes->share->rank_count; rank++) {
        size_t count = host_memory_with(routes->memory, (int)rank, &ranks);
        if (ranks[0] != (int)rank || rank == routes->rank ||
            host_memory_reaches(routes->memory, (int)rank))
            continue; /* its host is done, or this rank's own */
        struct takers takers = takers_of(routes, routes->rank, set, ranks, count);
        if (takers.count != 0)
            routes->to[takers.receiver] = true;
    }
}

static void add_own(struct share_routes *routes, uint32_t set)
{
    const int *ranks;
    size_t count = host_memory_with(routes->memory, (int)routes->rank, &ranks);
    for (size_t i = 0; i < count; i++)
        if (ranks[i] != (int)routes->rank && wants(routes, set, ranks[i]))
            routes->meets[ranks[i]] = routes->passes[ranks[i]] = true;
    if (set != routes->set)
        mark_receivers(routes, set);
    routes->set = set;
}

void share_routes_begin(struct share_routes *routes)
{
    size_t ranks = routes->share->rank_count;
    memset(routes->from, 0, ranks * sizeof *routes->from);
    memset(routes->shared, 0, ranks * sizeof *routes->shared);
    memset(routes->meets, 0, ranks * sizeof *routes->meets);
    memset(routes->passes, 0, ranks * sizeof *routes->passes);
    for (size_t rank = 0; rank < ranks; rank++)
        routes->holders[rank] = SHARE_NO_RANK;
}

void share_routes_add(struct share_routes *routes, uint32_t reader, uint32_t set)
{
    const int *ranks;
    if (reader == routes->rank) {
        add_own(routes, set);
        return;
    }
    if (!load_share_wants(routes->share, set, routes->rank))
        return;
    routes->holders[reader] = reader;
    if (host_memory_reaches(routes->memory, (int)reader)) {
        routes->meets[reader] = routes->passes[reader] = true;
        return;
    }
    size_t count = host_memory_with(routes->memory, (int)routes->rank, &ranks);
    struct takers takers = takers_of(routes, reader, set, ranks, count);
    routes->holders[reader] = takers.receiver;
    routes->from[reader] = takers.receiver == routes->rank;
    routes->shared[reader] = routes->from[reader] && takers.count > 1;
    if (!routes->from[reader])
        routes->passes[takers.receiver] = true;
    for (size_t i = 0; i < count && routes->shared[reader]; i++)
        if (ranks[i] != (int)routes->rank && wants(routes, set, ranks[i]))
            routes->passes[ranks[i]] = true;
}
