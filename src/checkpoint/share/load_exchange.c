/* SPDX-License-Identifier: BSD-3-Clause */
/* Rounds of an exchange. In each, every rank that has data left sends a window, and every rank
 * copies the windows that it receives, and its own, to their destinations. All ranks can compute
 * all windows, so only data is sent. A rank that fails goes on sending, so that no rank waits for
 * it, until the next agreement ends the load for all. Objects are made only from bytes that were
 * read without failure. */
#include "checkpoint/share/load_exchange.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/share/share_routes.h"
#include "group/group.h"

enum { ROUNDS_PER_AGREEMENT = 8, ROUNDS_PER_AGREEMENT_OF_HOST = 64, ALIGNMENT = 16 };

/* Buffers through which windows are copied to their destinations, four of them for a device, and
 * overhead of blocks. */
#define PLACING_MEMORY (4 * ((uint64_t)2 << 20) + ((uint64_t)64 << 10))

/* What a rank sends in a round. */
struct passage {
    struct share_cursor start;
    struct share_cursor next;
    const struct share_run *run; /* the first one of its window */
    uint32_t set;
    unsigned char *place; /* where this rank has all of it; NULL: it is copied from a window */
};

struct rounds {
    const struct load_exchange *exchange;
    const struct load_share *share;
    struct dcp_collective call;
    uint32_t rank;
    struct host_memory *memory; /* through which the ranks of this host exchange windows */
    struct share_prefetch *prefetch;
    struct share_destinations *put;
    struct share_routes routes;
    struct passage *passages; /* by rank, as the four that follow */
    size_t *sizes;
    unsigned char **places; /* where a message goes */
    uint64_t *notes;        /* of ranks of this host: where their windows are in their memory */
    uint64_t *tables;       /* and where they say where windows are that they have received */
    uint64_t *table;        /* of this rank, by reader; NULL: it receives none for others */
    unsigned char *received;
    void *allocated; /* NULL: that is in the host's memory */
    void *scratch;
    uint64_t received_bytes;
};

/* Copies a rank's window to its destinations. */
static dcp_status place_window(struct rounds *rounds, uint32_t rank, const unsigned char *bytes)
{
    const struct metadata *metadata = rounds->exchange->metadata;
    struct share_cursor cursor = rounds->passages[rank].start;
    struct share_window window = {0};
    struct share_segment segment;
    while (share_window_next(rounds->share, metadata, &window, &cursor, &segment)) {
        const struct share_region *region = &rounds->share->regions[segment.run->region];
        RETURN_IF_ERROR(bytes == rounds->passages[rank].place
                            ? share_destinations_count(rounds->put, &segment)
                            : share_destinations_put(rounds->put, &segment, bytes + segment.place));
        if (rank != rounds->rank)
            rounds->received_bytes += (uint64_t)(segment.end - segment.from) *
                                      share_element_size(&metadata->entries[region->entry]);
    }
    return DCP_OK;
}

/* Finds what a rank sends in the next round; false: it has no data left. */
static bool plan_passage(struct rounds *rounds, uint32_t rank)
{
    const struct load_share *share = rounds->share;
    struct passage *passage = &rounds->passages[rank];
    struct share_window window = {0};
    struct share_segment segment, first = {0};
    size_t count = 0;
    passage->start = passage->next;
    while (share_window_next(share, rounds->exchange->metadata, &window, &passage->next, &segment))
        first = count++ == 0 ? segment : first;
    passage->run = first.run;
    passage->set = window.set;
    rounds->sizes[rank] = window.bytes;
    passage->place = NULL;
    if (count == 1 && load_share_wants(share, window.set, rounds->rank))
        passage->place = share_destinations_place(rounds->put, first.run, first.from);
    if (count > 0)
        share_routes_add(&rounds->routes, rank, window.set);
    return count > 0;
}

/* Finds what every rank sends in the next round, and where that goes; false: no rank has data left.
 */
static bool plan_round(struct rounds *rounds)
{
    const struct share_routes *routes = &rounds->routes;
    unsigned char *place = rounds->received;
    bool any = false;
    share_routes_begin(&rounds->routes);
    for (uint32_t rank = 0; rank < rounds->share->rank_count; rank++) {
        any = plan_passage(rounds, rank) || any;
        rounds->places[rank] = rounds->passages[rank].place;
        if (!routes->from[rank] || (rounds->places[rank] && !routes->shared[rank]))
            continue;
        rounds->places[rank] = place;
        place += (rounds->sizes[rank] + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return any;
}

/* Finds the window that has come from another rank. */
static dcp_status find_window(const struct rounds *rounds, uint32_t rank,
                              const unsigned char **bytes)
{
    size_t size = rounds->sizes[rank];
    uint32_t holder = rounds->routes.holders[rank];
    uint64_t offset = rounds->notes[rank];
    const unsigned char *entry = NULL;
    *bytes = rounds->places[rank];
    if (holder == rounds->rank)
        return DCP_OK;
    if (holder != rank) {
        entry = host_memory_of(rounds->memory, (int)holder,
                               rounds->tables[holder] + rank * sizeof offset, sizeof offset);
        if (entry)
            memcpy(&offset, entry, sizeof offset);
    }
    *bytes = host_memory_of(rounds->memory, (int)holder, offset, size);
    if (!*bytes || (holder != rank && !entry))
        return dcp_error_set(DCP_ERR_GROUP,
                             "rank %" PRIu32 " announces %zu bytes from %" PRIu64
                             " on of the memory that it shares, which has not so many",
                             holder, size, offset);
    return DCP_OK;
}

static dcp_status place_round(struct rounds *rounds, const unsigned char *own)
{
    const unsigned char *bytes;
    for (uint32_t rank = 0; rank < rounds->share->rank_count; rank++) {
        if (rounds->routes.holders[rank] == SHARE_NO_RANK)
            continue;
        RETURN_IF_ERROR(find_window(rounds, rank, &bytes));
        RETURN_IF_ERROR(place_window(rounds, rank, bytes));
    }
    if (rounds->sizes[rounds->rank] == 0 ||
        !load_share_wants(rounds->share, rounds->passages[rounds->rank].set, rounds->rank))
        return DCP_OK;
    return place_window(rounds, rounds->rank, own);
}

/* Says where windows are that come for other ranks of this host as well. */
static void fill_table(struct rounds *rounds)
{
    const unsigned char *shared = host_memory_own(rounds->memory);
    for (uint32_t rank = 0; rank < rounds->share->rank_count && rounds->table; rank++)
        if (rounds->routes.shared[rank])
            rounds->table[rank] = (uint64_t)(rounds->places[rank] - shared);
}

/* To and from ranks of other hosts. The ranks of this one have read by now what came in the round
 * before. */
static dcp_status send_messages(struct rounds *rounds, const unsigned char *own)
{
    const struct share_routes *routes = &rounds->routes;
    const unsigned char *shared = host_memory_own(rounds->memory);
    const struct group_multicast multicast = {
        rounds->sizes, own, routes->to, routes->from, rounds->places, rounds->scratch};
    if (host_memory_is_whole(rounds->memory))
        return DCP_OK;
    fill_table(rounds);
    RETURN_IF_ERROR(group_multicast(rounds->exchange->group, &rounds->call, &multicast));
    uint64_t table = rounds->table ? (uint64_t)((unsigned char *)rounds->table - shared) : 0;
    return host_memory_meet(rounds->memory, &rounds->call, routes->passes, table, rounds->tables);
}

/* Sends and receives the windows of a round. *mine: this rank's own status, which others learn
 * later; only failures of the group are returned. sent: this rank's own window. */
static dcp_status send_windows(struct rounds *rounds, dcp_status *mine, const unsigned char **sent)
{
    struct saved_error error;
    const struct passage *passage = &rounds->passages[rounds->rank];
    size_t size = rounds->sizes[rounds->rank];
    const unsigned char *own = NULL, *shared = host_memory_own(rounds->memory);
    dcp_status read = DCP_OK;
    if (size != 0)
        read = share_prefetch_next(rounds->prefetch, passage->run, size, &own);
    *mine = *mine == DCP_OK ? read : *mine;
    uint64_t note = shared && own ? (uint64_t)(own - shared) : 0;
    *sent = passage->place ? passage->place : own;
    error_save(&error);
    dcp_status status =
        host_memory_meet(rounds->memory, &rounds->call, rounds->routes.meets, note, rounds->notes);
    if (status == DCP_OK)
        status = send_messages(rounds, *sent);
    if (status == DCP_OK)
        share_prefetch_pass(rounds->prefetch);
    if (*mine != DCP_OK)
        error_restore(&error);
    return status != DCP_OK && *mine != DCP_OK ? *mine : status;
}

static dcp_status agree(const struct rounds *rounds, dcp_status mine)
{
    host_memory_agree(rounds->memory);
    return group_agree(rounds->exchange->group, &rounds->call, mine);
}

/* If another group carries the bytes, ranks can still agree on its failure: each comes here when it
 * has given up waiting for bytes. */
static dcp_status agree_to_fail(struct rounds *rounds, dcp_status mine)
{
    rounds->call.timeout_seconds *= 2;
    return agree(rounds, mine);
}

static dcp_status run_rounds(struct rounds *rounds)
{
    dcp_status mine = DCP_OK;
    unsigned often =
        host_memory_is_whole(rounds->memory) ? ROUNDS_PER_AGREEMENT_OF_HOST : ROUNDS_PER_AGREEMENT;
    for (unsigned round = 1; plan_round(rounds); round++) {
        const unsigned char *own;
        dcp_status status = send_windows(rounds, &mine, &own);
        if (status != DCP_OK)
            return agree_to_fail(rounds, status);
        if (rounds->exchange->take)
            RETURN_IF_ERROR(agree(rounds, mine));
        if (mine == DCP_OK)
            mine = place_round(rounds, own);
        if (round % often == 0)
            RETURN_IF_ERROR(agree(rounds, mine));
    }
    return agree(rounds, mine);
}

/* Bytes of messages that this rank receives in a round: a window from each rank that sends to it.
 * memory: that of its host, if it is known. */
static size_t received_size(const struct load_exchange *exchange, const struct host_memory *memory)
{
    const struct load_share *share = exchange->share;
    uint32_t own = (uint32_t)dcp_group_rank(exchange->group);
    size_t count = 0;
    for (uint32_t rank = 0; rank < share->rank_count; rank++) {
        bool silent = rank == own || (memory && host_memory_reaches(memory, (int)rank));
        uint32_t at = silent ? (uint32_t)share->run_count : share->first[rank];
        while (at < share->run_count &&
               !load_share_wants(share, share->regions[share->runs[at].region].set, own))
            at = share->next[at];
        count += at < share->run_count;
    }
    return count * share->window;
}

/* In memory that the ranks of a host share, for those that receive windows for others. */
static size_t table_size(const struct load_share *share)
{
    const struct rounds *rounds;
    return (share->rank_count * sizeof *rounds->table + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

uint64_t load_exchange_memory(const struct load_exchange *exchange)
{
    const struct rounds *rounds;
    uint64_t for_each = sizeof *rounds->passages + sizeof *rounds->sizes + sizeof *rounds->places +
                        sizeof *rounds->notes + sizeof *rounds->tables;
    return exchange->share->rank_count * for_each + received_size(exchange, NULL) +
           share_routes_memory(exchange->share->rank_count) +
           group_multicast_scratch(exchange->group, exchange->share->window) +
           host_memory_needs((int)exchange->share->rank_count, table_size(exchange->share)) +
           share_destinations_memory(exchange) + share_prefetch_memory(exchange) + PLACING_MEMORY;
}

static dcp_status open_rounds(struct rounds *rounds)
{
    size_t ranks = rounds->share->rank_count;
    rounds->passages = memory_allocate_zeroed(ranks, sizeof *rounds->passages);
    rounds->sizes = memory_allocate_zeroed(ranks, sizeof *rounds->sizes);
    rounds->places = memory_allocate_zeroed(ranks, sizeof *rounds->places);
    rounds->notes = memory_allocate_zeroed(ranks, sizeof *rounds->notes);
    rounds->tables = memory_allocate_zeroed(ranks, sizeof *rounds->tables);
    if (!rounds->passages || !rounds->sizes || !rounds->places || !rounds->notes || !rounds->tables)
        return error_no_memory(ranks * sizeof *rounds->passages, "messages of other ranks");
    for (uint32_t rank = 0; rank < ranks; rank++)
        rounds->passages[rank].next = share_cursor_start(rounds->share, rank);
    RETURN_IF_ERROR(share_routes_open(rounds->share, rounds->rank, &rounds->routes));
    RETURN_IF_ERROR(share_destinations_open(rounds->exchange, &rounds->put));
    return share_prefetch_open(rounds->exchange, rounds->put, &rounds->prefetch);
}

/* Memory for messages: where other ranks of this host read what comes for them, that of the host.
 */
static dcp_status open_received(struct rounds *rounds)
{
    size_t received = received_size(rounds->exchange, rounds->memory);
    size_t scratch = host_memory_is_whole(rounds->memory)
                         ? 0
                         : group_multicast_scratch(rounds->exchange->group, rounds->share->window);
    unsigned char *between = host_memory_between(rounds->memory);
    if (!between)
        rounds->allocated = memory_allocate(received);
    rounds->scratch = memory_allocate(scratch);
    if ((!between && !rounds->allocated) || !rounds->scratch)
        return error_no_memory(received + scratch, "messages of other ranks");
    rounds->table = (uint64_t *)(void *)between;
    rounds->received = between ? between + table_size(rounds->share) : rounds->allocated;
    return DCP_OK;
}

/* Once it is known which ranks share memory. */
static dcp_status start_rounds(struct rounds *rounds)
{
    rounds->routes.memory = rounds->memory;
    RETURN_IF_ERROR(open_received(rounds));
    return share_prefetch_start(rounds->prefetch, rounds->memory);
}

static void release(struct rounds *rounds)
{
    share_prefetch_close(rounds->prefetch);
    share_destinations_close(rounds->put);
    share_routes_close(&rounds->routes);
    host_memory_close(rounds->memory);
    memory_release(rounds->passages);
    memory_release(rounds->sizes);
    memory_release(rounds->places);
    memory_release(rounds->notes);
    memory_release(rounds->tables);
    memory_release(rounds->allocated);
    memory_release(rounds->scratch);
}

dcp_status load_exchange_run(const struct load_exchange *exchange, dcp_status mine, uint64_t *moved,
                             uint64_t *received)
{
    struct rounds rounds = {
        .exchange = exchange,
        .share = exchange->share,
        .call = exchange->call,
        .rank = (uint32_t)dcp_group_rank(exchange->group),
    };
    if (exchange->share->run_count == 0)
        return mine;
    if (mine == DCP_OK)
        mine = open_rounds(&rounds);
    size_t room = mine == DCP_OK ? share_prefetch_room(rounds.prefetch) : 0;
    size_t between = table_size(exchange->share) + received_size(exchange, NULL);
    dcp_status status =
        host_memory_open(exchange->group, &rounds.call, mine, room, between, &rounds.memory);
    if (status == DCP_OK && mine == DCP_OK) {
        status = agree(&rounds, start_rounds(&rounds));
        status = status == DCP_OK ? run_rounds(&rounds) : status;
    }
    *moved += rounds.put ? share_destinations_moved(rounds.put) : 0;
    *received += rounds.received_bytes;
    release(&rounds);
    return status;
}
