/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/save/replica_compare.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "dcp/types.h"

enum { KEY_SIZE = 8, DIGEST_SIZE = 8 };

static int compare_holders(const void *left, const void *right)
{
    const struct replica_holder *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

static size_t size_of(const struct group_messages *messages, int rank)
{
    return messages->offsets[rank + 1] - messages->offsets[rank];
}

static bool is_small(uint64_t key)
{
    return key != 0 && key % 2 == 0;
}

/* How many turns it takes until each small item had one. No multiple of the number of parts, so
 * that both together go through all pairs. */
static uint64_t count_turns(const struct group_messages *keys)
{
    uint64_t small = 0;
    for (size_t at = 0; at + KEY_SIZE <= keys->offsets[keys->count]; at += KEY_SIZE)
        small += is_small(load_u64(keys->bytes + at));
    uint64_t turns = small / ((uint64_t)keys->count * REPLICA_SAMPLE_SMALL) + 1;
    return turns % DCP_REPLICA_PARTS != 0 ? turns : turns + 1;
}

/* The keys whose turn it is. turns: 1 if it is the turn of all. */
static dcp_status list_all(struct replica_holders *all, const struct group_messages *keys,
                           uint64_t turns, uint64_t turn)
{
    size_t most = keys->offsets[keys->count] / KEY_SIZE;
    all->count = 0;
    all->holders = memory_allocate_array(most, sizeof *all->holders);
    if (!all->holders)
        return error_no_memory(most * sizeof *all->holders, "keys of all ranks");
    for (int rank = 0; rank < keys->count; rank++) {
        const unsigned char *bytes = keys->bytes + keys->offsets[rank];
        size_t count = size_of(keys, rank) / KEY_SIZE;
        if (size_of(keys, rank) % KEY_SIZE != 0 || count > UINT32_MAX)
            return dcp_error_set(DCP_ERR_GROUP,
                                 "rank %d sent %zu bytes of keys, expected a multiple of 8", rank,
                                 size_of(keys, rank));
        for (size_t i = 0; i < count; i++) {
            uint64_t key = load_u64(bytes + i * KEY_SIZE);
            if (key != 0 && (!is_small(key) || (key / 2 + turn) % turns == 0))
                all->holders[all->count++] = (struct replica_holder){
                    .key = key, .rank = (uint32_t)rank, .index = (uint32_t)i};
        }
    }
    return DCP_OK;
}

/* The end of the holders with the same key. */
static size_t group_end(const struct replica_holders *holders, size_t first)
{
    size_t end = first + 1;
    while (end < holders->count && holders->holders[end].key == holders->holders[first].key)
        end++;
    return end;
}

dcp_status replica_holders_find(struct replica_holders *shared, const struct group_messages *keys,
                                bool sampled, uint64_t turn)
{
    RETURN_IF_ERROR(list_all(shared, keys, sampled ? count_turns(keys) : 1, turn));
    struct replica_holder *holders = shared->holders;
    size_t kept = 0;
    qsort(holders, shared->count, sizeof *holders, compare_holders);
    for (size_t first = 0, end; first < shared->count; first = end) {
        end = group_end(shared, first);
        if (holders[first].rank == holders[end - 1].rank)
            continue;
        for (size_t i = first; i < end; i++)
            holders[kept++] = holders[i];
    }
    shared->count = kept;
    return DCP_OK;
}

void replica_holders_free(struct replica_holders *shared)
{
    memory_release(shared->holders);
    *shared = (struct replica_holders){0};
}

dcp_status replica_holders_ask(struct replica_holders *shared, struct buffer *questions)
{
    for (size_t i = 0; i < shared->count; i++) {
        struct replica_holder *holder = &shared->holders[i];
        struct buffer *question = &questions[holder->rank];
        size_t item = holder->index;
        holder->index = (uint32_t)(question->size / sizeof(uint32_t));
        buffer_append_u32(question, (uint32_t)item);
        RETURN_IF_ERROR(buffer_status(question));
    }
    return DCP_OK;
}

static dcp_status take_digests(struct replica_holders *shared, const struct group_messages *digests)
{
    for (size_t i = 0; i < shared->count; i++) {
        struct replica_holder *holder = &shared->holders[i];
        size_t size = size_of(digests, (int)holder->rank);
        if (holder->index >= size / DIGEST_SIZE)
            return dcp_error_set(DCP_ERR_GROUP,
                                 "rank %u sent only %zu bytes of digests, fewer than requested",
                                 holder->rank, size);
        holder->digest = load_u64(digests->bytes + digests->offsets[holder->rank] +
                                  (size_t)holder->index * DIGEST_SIZE);
    }
    return DCP_OK;
}

dcp_status replica_holders_compare(struct replica_holders *shared,
                                   const struct group_messages *digests, size_t most,
                                   struct buffer *keys, size_t *differing)
{
    const struct replica_holder *holders = shared->holders;
    *differing = 0;
    RETURN_IF_ERROR(take_digests(shared, digests));
    for (size_t first = 0, end; first < shared->count; first = end) {
        bool differs = false;
        end = group_end(shared, first);
        for (size_t i = first + 1; i < end; i++)
            differs |= holders[i].digest != holders[first].digest;
        if (differs && (*differing)++ < most)
            buffer_append_u64(keys, holders[first].key);
    }
    return buffer_status(keys);
}
