/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/metadata/piece_table.h"

#include <stdbool.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

/* Open addressing, at most half full. */
struct piece_slot {
    uint32_t hash;
    uint32_t position; /* plus one; 0: free */
};

dcp_status piece_table_init(struct piece_table *table, const struct piece_key *keys,
                            size_t capacity)
{
    if (capacity >= UINT32_MAX / 2)
        return dcp_error_set(DCP_ERR_FORMAT, "metadata: %zu pieces, at most 2^31 are supported",
                             capacity);
    size_t size = 8;
    while (size < 2 * capacity)
        size *= 2;
    *table = (struct piece_table){.mask = size - 1, .keys = keys};
    table->slots = memory_allocate_zeroed(size, sizeof *table->slots);
    if (table->slots == NULL)
        return error_no_memory(size * sizeof *table->slots, "a table of pieces");
    /* Offsets come from files: with an unpredictable seed, nobody can choose offsets that
     * collide. */
    table->seed = (uint64_t)clock_monotonic_ns() ^ (uint64_t)(uintptr_t)table->slots;
    return DCP_OK;
}

void piece_table_free(struct piece_table *table)
{
    memory_release(table->slots);
    *table = (struct piece_table){0};
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9fb21c651e98df25);
    return hash ^ hash >> 32;
}

static uint64_t hash_key(const struct piece_table *table, const struct piece_key *key)
{
    uint64_t hash = mix(table->seed, (uint64_t)key->entry << 32 | (uint32_t)key->ndim);
    for (int32_t i = 0; i < key->ndim; i++)
        hash = mix(hash, (uint64_t)key->offset[i]);
    return mix(hash, table->seed);
}

static bool keys_equal(const struct piece_key *a, const struct piece_key *b)
{
    return a->entry == b->entry && a->ndim == b->ndim &&
           (a->ndim <= 0 || memcmp(a->offset, b->offset, (size_t)a->ndim * sizeof *a->offset) == 0);
}

/* The slot of an equal key, or the free slot for it. */
static struct piece_slot *find_slot(const struct piece_table *table, const struct piece_key *key,
                                    uint64_t hash)
{
    for (size_t i = hash & table->mask;; i = (i + 1) & table->mask) {
        struct piece_slot *slot = &table->slots[i];
        if (slot->position == 0 ||
            (slot->hash == hash >> 32 && keys_equal(&table->keys[slot->position - 1], key)))
            return slot;
    }
}

size_t piece_table_find(const struct piece_table *table, const struct piece_key *key)
{
    const struct piece_slot *slot = find_slot(table, key, hash_key(table, key));
    return slot->position != 0 ? slot->position - 1 : PIECE_NOT_FOUND;
}

size_t piece_table_add(struct piece_table *table, size_t position)
{
    const struct piece_key *key = &table->keys[position];
    uint64_t hash = hash_key(table, key);
    struct piece_slot *slot = find_slot(table, key, hash);
    if (slot->position == 0)
        *slot = (struct piece_slot){(uint32_t)(hash >> 32), (uint32_t)position + 1};
    return slot->position - 1;
}
