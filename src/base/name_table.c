/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/name_table.h"

#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

/* Tables of this size are searched linearly, which is faster than hashing. */
enum { CAPACITY_FIRST = 16 };

struct name_slot {
    const char *name; /* NULL: free */
    size_t length;
    uint64_t hash;
    uint64_t value;
};

/* Names come from files, so hashes are seeded: an attacker must not be able to choose names that
 * all collide. Each thread asks the system for random bytes once, as tiny tables are made by the
 * thousand. */
static uint64_t next_seed(void)
{
    static _Thread_local uint64_t state;
    if (state == 0 && getrandom(&state, sizeof state, GRND_NONBLOCK) != sizeof state)
        state = (uint64_t)clock_monotonic_ns() ^ (uintptr_t)&state;
    state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t seed = (state ^ state >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    seed = (seed ^ seed >> 27) * UINT64_C(0x94d049bb133111eb);
    return seed ^ seed >> 31;
}

void name_table_init(struct name_table *table)
{
    *table = (struct name_table){.seed = next_seed()};
}

void name_table_free(struct name_table *table)
{
    memory_release(table->slots);
    *table = (struct name_table){.seed = table->seed};
}

static uint64_t hash_name(const struct name_table *table, const char *name, size_t length)
{
    return table->capacity > CAPACITY_FIRST ? XXH3_64bits_withSeed(name, length, table->seed) : 0;
}

/* The slot that holds the name, or the free slot for it. Capacities are powers of two, and tables
 * at most three quarters full. At the first capacity, slots are filled in order. */
static struct name_slot *find_slot(const struct name_table *table, uint64_t hash, const char *name,
                                   size_t length)
{
    struct name_slot *slots = table->slots;
    size_t i = (size_t)hash & (table->capacity - 1);
    while (slots[i].name != NULL) {
        if (slots[i].hash == hash && slots[i].length == length &&
            memcmp(slots[i].name, name, length) == 0)
            break;
        i = (i + 1) & (table->capacity - 1);
    }
    return &slots[i];
}

static dcp_status grow(struct name_table *table)
{
    size_t capacity = CAPACITY_FIRST;
    if (table->capacity != 0 && __builtin_mul_overflow(table->capacity, 2, &capacity))
        return error_no_memory(SIZE_MAX, "a name table");
    struct name_table grown = {.seed = table->seed, .capacity = capacity, .count = table->count};
    grown.slots = memory_allocate_zeroed(capacity, sizeof *grown.slots);
    if (grown.slots == NULL)
        return error_no_memory(capacity * sizeof *grown.slots, "a name table");
    for (size_t i = 0; i < table->capacity; i++) {
        struct name_slot old = table->slots[i];
        if (old.name == NULL)
            continue;
        if (table->capacity == CAPACITY_FIRST)
            old.hash = hash_name(&grown, old.name, old.length);
        *find_slot(&grown, old.hash, old.name, old.length) = old;
    }
    memory_release(table->slots);
    *table = grown;
    return DCP_OK;
}

dcp_status name_table_add(struct name_table *table, const char *name, size_t length,
                          uint64_t *value, bool *existing)
{
    if (table->count >= table->capacity / 4 * 3)
        RETURN_IF_ERROR(grow(table));
    uint64_t hash = hash_name(table, name, length);
    struct name_slot *slot = find_slot(table, hash, name, length);
    *existing = slot->name != NULL;
    if (*existing) {
        *value = slot->value;
        return DCP_OK;
    }
    *slot = (struct name_slot){.name = name, .length = length, .hash = hash, .value = *value};
    table->count++;
    return DCP_OK;
}

bool name_table_find(const struct name_table *table, const char *name, size_t length,
                     uint64_t *value)
{
    if (table->count == 0)
        return false;
    uint64_t hash = hash_name(table, name, length);
    const struct name_slot *slot = find_slot(table, hash, name, length);
    if (slot->name == NULL)
        return false;
    *value = slot->value;
    return true;
}
