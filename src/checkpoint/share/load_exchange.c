/* SPDX-License-Identifier: BSD-3-Clause */
/* Rounds of an exchange. In each, every rank that has data left sends a window, and every rank
 * copies the windows that it receives, and its own, to their destinations. A rank that fails goes
 * on sending, so that no rank waits for it, until the next agreement ends the load for all. Objects
 * are made only from bytes that were read without failure. */
#include "checkpoint/share/load_exchange.h"

#include "base/error.h"
#include "checkpoint/share/share_messages.h"
#include "checkpoint/share/share_round.h"
#include "group/group.h"

enum { ROUNDS_PER_AGREEMENT = 8, ROUNDS_PER_AGREEMENT_OF_HOST = 64 };

/* Buffers through which windows are copied to their destinations, four of them for a device, and
 * overhead of blocks. */
#define PLACING_MEMORY (4 * ((uint64_t)2 << 20) + ((uint64_t)64 << 10))

struct rounds {
    const struct load_exchange *exchange;
    struct dcp_collective call;
    uint32_t rank;
    struct host_memory *memory;
    struct share_prefetch *prefetch;
    struct share_destinations *put;
    struct share_round round;
    struct share_messages messages;
    uint64_t received_bytes;
};

/* Copies a rank's window to its destinations. */
static dcp_status place_window(struct rounds *rounds, uint32_t rank, const unsigned char *bytes)
{
    const struct metadata *metadata = rounds->exchange->metadata;
    const struct load_share *share = rounds->exchange->share;
    const struct share_passage *passage = &rounds->round.passages[rank];
    struct share_cursor cursor = passage->start;
    struct share_window window = {0};
    struct share_segment segment;
    while (share_window_next(share, metadata, &window, &cursor, &segment)) {
        const struct share_region *region = &share->regions[segment.run->region];
        RETURN_IF_ERROR(bytes == passage->place
                            ? share_destinations_count(rounds->put, &segment)
                            : share_destinations_put(rounds->put, &segment, bytes + segment.place));
        if (rank != rounds->rank)
            rounds->received_bytes += (uint64_t)(segment.end - segment.from) *
                                      share_element_size(&metadata->entries[region->entry]);
    }
    return DCP_OK;
}

static dcp_status place_round(struct rounds *rounds, const unsigned char *own)
{
    const struct load_share *share = rounds->exchange->share;
    const struct share_round *round = &rounds->round;
    const unsigned char *bytes;
    for (uint32_t rank = 0; rank < share->rank_count; rank++) {
        if (round->routes.holders[rank] == SHARE_NO_RANK)
            continue;
        RETURN_IF_ERROR(share_messages_find(&rounds->messages, rank, &bytes));
        RETURN_IF_ERROR(place_window(rounds, rank, bytes));
    }
    if (round->sizes[rounds->rank] == 0 ||
        !load_share_wants(share, round->passages[rounds->rank].set, rounds->rank))
        return DCP_OK;
    return place_window(rounds, rounds->rank, own);
}

/* Sends and receives the windows of a round. *mine: this rank's own status, which others learn
 * later; only failures of the group are returned. sent: this rank's own window. */
static dcp_status send_windows(struct rounds *rounds, dcp_status *mine, const unsigned char **sent)
{
    struct saved_error error;
    const struct share_passage *passage = &rounds->round.passages[rounds->rank];
    size_t size = rounds->round.sizes[rounds->rank];
    const unsigned char *own = NULL, *shared = host_memory_own(rounds->memory);
    dcp_status read = DCP_OK;
    if (size != 0)
        read = share_prefetch_next(rounds->prefetch, passage->run, size, &own);
    *mine = *mine == DCP_OK ? read : *mine;
    uint64_t note = shared && own ? (uint64_t)(own - shared) : 0;
    *sent = passage->place ? passage->place : own;
    error_save(&error);
    dcp_status status = share_messages_send(&rounds->messages, &rounds->call, note, *sent);
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
    for (unsigned round = 1; share_round_next(&rounds->round, rounds->messages.received); round++) {
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

uint64_t load_exchange_memory(const struct load_exchange *exchange)
{
    return share_round_memory(exchange->share->rank_count) + share_messages_memory(exchange) +
           share_destinations_memory(exchange) + share_prefetch_memory(exchange) + PLACING_MEMORY;
}

static dcp_status open_rounds(struct rounds *rounds)
{
    const struct load_exchange *exchange = rounds->exchange;
    RETURN_IF_ERROR(share_destinations_open(exchange, &rounds->put));
    RETURN_IF_ERROR(share_round_open(exchange, rounds->put, &rounds->round));
    RETURN_IF_ERROR(share_messages_open(exchange, &rounds->round, &rounds->messages));
    return share_prefetch_open(exchange, rounds->put, &rounds->prefetch);
}

/* Once it is known which ranks share memory. */
static dcp_status start_rounds(struct rounds *rounds)
{
    rounds->round.routes.memory = rounds->memory;
    RETURN_IF_ERROR(share_messages_start(&rounds->messages, rounds->memory));
    return share_prefetch_start(rounds->prefetch, rounds->memory);
}

static void release(struct rounds *rounds)
{
    share_prefetch_close(rounds->prefetch);
    share_messages_close(&rounds->messages);
    share_round_close(&rounds->round);
    share_destinations_close(rounds->put);
    host_memory_close(rounds->memory);
}

dcp_status load_exchange_run(const struct load_exchange *exchange, dcp_status mine, uint64_t *moved,
                             uint64_t *received)
{
    struct rounds rounds = {
        .exchange = exchange,
        .call = exchange->call,
        .rank = (uint32_t)dcp_group_rank(exchange->group),
    };
    if (exchange->share->run_count == 0)
        return mine;
    if (mine == DCP_OK)
        mine = open_rounds(&rounds);
    size_t room = mine == DCP_OK ? share_prefetch_room(rounds.prefetch) : 0;
    dcp_status status = host_memory_open(exchange->group, &rounds.call, mine, room,
                                         share_messages_between(exchange), &rounds.memory);
    if (status == DCP_OK && mine == DCP_OK) {
        status = agree(&rounds, start_rounds(&rounds));
        status = status == DCP_OK ? run_rounds(&rounds) : status;
    }
    *moved += rounds.put ? share_destinations_moved(rounds.put) : 0;
    *received += rounds.received_bytes;
    release(&rounds);
    return status;
}
