/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/share/share_messages.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "group/group.h"

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
    const struct share_messages *messages;
    return (share->rank_count * sizeof *messages->table + SHARE_MESSAGE_ALIGNMENT - 1) /
           SHARE_MESSAGE_ALIGNMENT * SHARE_MESSAGE_ALIGNMENT;
}

size_t share_messages_between(const struct load_exchange *exchange)
{
    return table_size(exchange->share) + received_size(exchange, NULL);
}

uint64_t share_messages_memory(const struct load_exchange *exchange)
{
    const struct share_messages *messages;
    const struct load_share *share = exchange->share;
    return share->rank_count * (sizeof *messages->notes + sizeof *messages->tables) +
           received_size(exchange, NULL) + group_multicast_scratch(exchange->group, share->window) +
           host_memory_needs((int)share->rank_count, table_size(share));
}

dcp_status share_messages_open(const struct load_exchange *exchange,
                               const struct share_round *round, struct share_messages *messages)
{
    size_t ranks = exchange->share->rank_count;
    *messages = (struct share_messages){.exchange = exchange, .round = round};
    messages->notes = memory_allocate_zeroed(ranks, sizeof *messages->notes);
    messages->tables = memory_allocate_zeroed(ranks, sizeof *messages->tables);
    if (!messages->notes || !messages->tables)
        return error_no_memory(2 * ranks * sizeof *messages->notes, "messages of other ranks");
    return DCP_OK;
}

dcp_status share_messages_start(struct share_messages *messages, struct host_memory *memory)
{
    const struct load_exchange *exchange = messages->exchange;
    size_t received = received_size(exchange, memory);
    size_t scratch = host_memory_is_whole(memory)
                         ? 0
                         : group_multicast_scratch(exchange->group, exchange->share->window);
    unsigned char *between = host_memory_between(memory);
    messages->memory = memory;
    if (!between)
        messages->allocated = memory_allocate(received);
    messages->scratch = memory_allocate(scratch);
    if ((!between && !messages->allocated) || !messages->scratch)
        return error_no_memory(received + scratch, "messages of other ranks");
    messages->table = (uint64_t *)(void *)between;
    messages->received = between ? between + table_size(exchange->share) : messages->allocated;
    return DCP_OK;
}

void share_messages_close(struct share_messages *messages)
{
    memory_release(messages->notes);
    memory_release(messages->tables);
    memory_release(messages->allocated);
    memory_release(messages->scratch);
}

/* Says where windows are that come for other ranks of this host as well. */
static void fill_table(struct share_messages *messages)
{
    const struct share_round *round = messages->round;
    const unsigned char *shared = host_memory_own(messages->memory);
    for (uint32_t rank = 0; rank < messages->exchange->share->rank_count && messages->table; rank++)
        if (round->routes.shared[rank])
            messages->table[rank] = (uint64_t)(round->places[rank] - shared);
}

dcp_status share_messages_send(struct share_messages *messages, const struct dcp_collective *call,
                               uint64_t note, const unsigned char *own)
{
    const struct share_round *round = messages->round;
    const struct share_routes *routes = &round->routes;
    const unsigned char *shared = host_memory_own(messages->memory);
    const struct group_multicast multicast = {.sizes = round->sizes,
                                              .send = own,
                                              .to = routes->to,
                                              .from = routes->from,
                                              .places = round->places,
                                              .scratch = messages->scratch};
    RETURN_IF_ERROR(host_memory_meet(messages->memory, call, routes->meets, note, messages->notes));
    if (host_memory_is_whole(messages->memory))
        return DCP_OK;
    fill_table(messages);
    RETURN_IF_ERROR(group_multicast(messages->exchange->group, call, &multicast));
    uint64_t table = messages->table ? (uint64_t)((unsigned char *)messages->table - shared) : 0;
    return host_memory_meet(messages->memory, call, routes->passes, table, messages->tables);
}

static dcp_status fail_outside(uint32_t holder, size_t size, uint64_t offset)
{
    return dcp_error_set(DCP_ERR_GROUP,
                         "rank %" PRIu32 " announces %zu bytes from %" PRIu64
                         " on of the memory that it shares, which has not so many",
                         holder, size, offset);
}

dcp_status share_messages_find(const struct share_messages *messages, uint32_t rank,
                               const unsigned char **bytes)
{
    const struct share_round *round = messages->round;
    uint32_t holder = round->routes.holders[rank];
    uint64_t offset = messages->notes[rank];
    *bytes = round->places[rank];
    if (holder == round->routes.rank)
        return DCP_OK;
    if (holder != rank) { /* which has received it, and says in its table where that is */
        uint64_t place = messages->tables[holder] + rank * sizeof offset;
        const unsigned char *entry =
            host_memory_of(messages->memory, (int)holder, place, sizeof offset);
        if (!entry)
            return fail_outside(holder, sizeof offset, place);
        memcpy(&offset, entry, sizeof offset);
    }
    *bytes = host_memory_of(messages->memory, (int)holder, offset, round->sizes[rank]);
    return *bytes ? DCP_OK : fail_outside(holder, round->sizes[rank], offset);
}
