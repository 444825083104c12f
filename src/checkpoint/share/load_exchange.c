/* SPDX-License-Identifier: BSD-3-Clause */
/* Rounds of an exchange. In each, every rank that has data left sends a window, and every rank
 * copies the windows that it receives, and its own, to their destinations. All ranks can compute
 * all windows, so only data is sent. A rank that fails goes on sending, so that no rank waits for
 * it, until the next agreement ends the load for all. Objects are made only from bytes that were
 * read without failure. */
#include "checkpoint/share/load_exchange.h"

#include <inttypes.h>

#include "base/error.h"
#include "base/memory.h"
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
    struct passage *passages; /* by rank, as all that follow */
    size_t *sizes;
    unsigned char **places; /* where a message goes */
    bool *gives;            /* this rank a window */
    bool *takes;            /* this rank's */
    bool *to;               /* those that take a message */
    bool *from;             /* and that give one; the others are of this host */
    bool *meets;            /* of this host, with windows for each other */
    uint64_t *notes;
    uint32_t set; /* whose ranks are marked in `takes`; set_count: none yet */
    unsigned char *received;
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
    bool wanted = window.begun && load_share_wants(share, window.set, rounds->rank);
    rounds->gives[rank] = wanted && rank != rounds->rank;
    passage->place =
        wanted && count == 1 ? share_destinations_place(rounds->put, first.run, first.from) : NULL;
    return count > 0;
}

/* Finds what every rank sends in the next round, and where that goes; false: no rank has data left.
 */
static bool plan_round(struct rounds *rounds)
{
    unsigned char *place = rounds->received;
    bool any = false;
    for (uint32_t rank = 0; rank < rounds->share->rank_count; rank++) {
        any = plan_passage(rounds, rank) || any;
        rounds->places[rank] = rounds->passages[rank].place;
        rounds->from[rank] = rounds->gives[rank] && !host_memory_reaches(rounds->memory, (int)rank);
        if (!rounds->from[rank] || rounds->places[rank])
            continue;
        rounds->places[rank] = place;
        place += (rounds->sizes[rank] + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return any;
}

/* Finds which ranks take this rank's window, as a message or where it is. */
static void mark_takers(struct rounds *rounds)
{
    uint32_t set = rounds->passages[rounds->rank].set;
    bool sends = rounds->sizes[rounds->rank] != 0, changes = sends && set != rounds->set;
    for (uint32_t rank = 0; rank < rounds->share->rank_count; rank++) {
        bool reached = host_memory_reaches(rounds->memory, (int)rank);
        if (changes)
            rounds->takes[rank] =
                rank != rounds->rank && load_share_wants(rounds->share, set, rank);
        rounds->to[rank] = rounds->takes[rank] && !reached;
        rounds->meets[rank] = reached && ((rounds->gives[rank] && rounds->sizes[rank] != 0) ||
                                          (rounds->takes[rank] && sends));
    }
    rounds->set = sends ? set : rounds->set;
}

/* Finds the window that has come from another rank. */
static dcp_status find_window(const struct rounds *rounds, uint32_t rank,
                              const unsigned char **bytes)
{
    size_t size = rounds->sizes[rank];
    *bytes = rounds->places[rank];
    if (!host_memory_reaches(rounds->memory, (int)rank))
        return DCP_OK;
    *bytes = host_memory_of(rounds->memory, (int)rank, rounds->notes[rank], size);
    if (!*bytes)
        return dcp_error_set(DCP_ERR_GROUP,
                             "rank %" PRIu32 " announces %zu bytes from %" PRIu64
                             " on of the memory that it shares, which has not so many",
                             rank, size, rounds->notes[rank]);
    return DCP_OK;
}

static dcp_status place_round(struct rounds *rounds, const unsigned char *own)
{
    const unsigned char *bytes;
    for (uint32_t rank = 0; rank < rounds->share->rank_count; rank++) {
        if (!rounds->gives[rank])
            continue;
        RETURN_IF_ERROR(find_window(rounds, rank, &bytes));
        RETURN_IF_ERROR(place_window(rounds, rank, bytes));
    }
    if (rounds->sizes[rounds->rank] == 0 ||
        !load_share_wants(rounds->share, rounds->passages[rounds->rank].set, rounds->rank))
        return DCP_OK;
    return place_window(rounds, rounds->rank, own);
}

/* To and from ranks of other hosts. */
static dcp_status send_messages(struct rounds *rounds, const unsigned char *own)
{
    const struct group_multicast multicast = {
        rounds->sizes, own, rounds->to, rounds->from, rounds->places, rounds->scratch};
    if (host_memory_is_whole(rounds->memory))
        return DCP_OK;
    return group_multicast(rounds->exchange->group, &rounds->call, &multicast);
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
    mark_takers(rounds);
    if (size != 0)
        read = share_prefetch_next(rounds->prefetch, passage->run, size, &own);
    *mine = *mine == DCP_OK ? read : *mine;
    uint64_t note = shared && own ? (uint64_t)(own - shared) : 0;
    *sent = passage->place ? passage->place : own;
    error_save(&error);
    dcp_status status =
        host_memory_meet(rounds->memory, &rounds->call, rounds->meets, note, rounds->notes);
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

uint64_t load_exchange_memory(const struct load_exchange *exchange)
{
    const struct rounds *rounds;
    uint64_t for_each = sizeof *rounds->passages + sizeof *rounds->sizes + sizeof *rounds->places +
                        sizeof *rounds->gives + sizeof *rounds->takes + sizeof *rounds->to +
                        sizeof *rounds->from + sizeof *rounds->meets + sizeof *rounds->notes;
    return exchange->share->rank_count * for_each + received_size(exchange, NULL) +
           group_multicast_scratch(exchange->group, exchange->share->window) +
           host_memory_needs((int)exchange->share->rank_count, 0) +
           share_destinations_memory(exchange) + share_prefetch_memory(exchange) + PLACING_MEMORY;
}

static dcp_status open_rounds(struct rounds *rounds)
{
    size_t ranks = rounds->share->rank_count;
    rounds->passages = memory_allocate_zeroed(ranks, sizeof *rounds->passages);
    rounds->sizes = memory_allocate_zeroed(ranks, sizeof *rounds->sizes);
    rounds->places = memory_allocate_zeroed(ranks, sizeof *rounds->places);
    rounds->gives = memory_allocate_zeroed(ranks, sizeof *rounds->gives);
    rounds->takes = memory_allocate_zeroed(ranks, sizeof *rounds->takes);
    rounds->to = memory_allocate_zeroed(ranks, sizeof *rounds->to);
    rounds->from = memory_allocate_zeroed(ranks, sizeof *rounds->from);
    rounds->meets = memory_allocate_zeroed(ranks, sizeof *rounds->meets);
    rounds->notes = memory_allocate_zeroed(ranks, sizeof *rounds->notes);
    if (!rounds->passages || !rounds->sizes || !rounds->places || !rounds->gives ||
        !rounds->takes || !rounds->to || !rounds->from || !rounds->meets || !rounds->notes)
        return error_no_memory(ranks * sizeof *rounds->passages, "messages of other ranks");
    for (uint32_t rank = 0; rank < ranks; rank++)
        rounds->passages[rank].next = share_cursor_start(rounds->share, rank);
    RETURN_IF_ERROR(share_destinations_open(rounds->exchange, &rounds->put));
    return share_prefetch_open(rounds->exchange, rounds->put, &rounds->prefetch);
}

/* Once it is known which ranks share memory. */
static dcp_status start_rounds(struct rounds *rounds)
{
    const struct load_exchange *exchange = rounds->exchange;
    size_t received = received_size(exchange, rounds->memory);
    size_t scratch = host_memory_is_whole(rounds->memory)
                         ? 0
                         : group_multicast_scratch(exchange->group, rounds->share->window);
    rounds->received = memory_allocate(received);
    rounds->scratch = memory_allocate(scratch);
    if (!rounds->received || !rounds->scratch)
        return error_no_memory(received + scratch, "messages of other ranks");
    return share_prefetch_start(rounds->prefetch, rounds->memory);
}

static void release(struct rounds *rounds)
{
    share_prefetch_close(rounds->prefetch);
    share_destinations_close(rounds->put);
    host_memory_close(rounds->memory);
    memory_release(rounds->passages);
    memory_release(rounds->sizes);
    memory_release(rounds->places);
    memory_release(rounds->gives);
    memory_release(rounds->takes);
    memory_release(rounds->to);
    memory_release(rounds->from);
    memory_release(rounds->meets);
    memory_release(rounds->notes);
    memory_release(rounds->received);
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
        .set = (uint32_t)exchange->share->set_count,
    };
    if (exchange->share->run_count == 0)
        return mine;
    if (mine == DCP_OK)
        mine = open_rounds(&rounds);
    size_t room = mine == DCP_OK ? share_prefetch_room(rounds.prefetch) : 0;
    dcp_status status = host_memory_open(exchange->group, &rounds.call, mine, room, &rounds.memory);
    if (status == DCP_OK && mine == DCP_OK) {
        status = agree(&rounds, start_rounds(&rounds));
        status = status == DCP_OK ? run_rounds(&rounds) : status;
    }
    *moved += rounds.put ? share_destinations_moved(rounds.put) : 0;
    *received += rounds.received_bytes;
    release(&rounds);
    return status;
}
