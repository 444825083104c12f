/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/name_table.h"

#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

/* So many names are searched one by one, which is faster than hashing. */
enum { FEW = 12, SLOTS_FIRST = 32 };

/* The most names: their numbers and one more fit into a slot. */
#define MOST ((size_t)UINT32_MAX / 2)

struct named {
    const char *name;
    size_t length;
    uint64_t value;
};

struct name_slot {
    uint32_t hash;
    uint32_t number; /* of a name, from 1 on; 0: free */
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
    memory_release(table->names);
    memory_release(table->slots);
    *table = (struct name_table){.seed = table->seed};
}

/* Names that differ in their last byte alone are neighbours in the index: whoever goes through
 * numbered names waits for memory once for ten of them. No more than 256 names can be chosen to be
 * that. */
static uint32_t hash_name(const struct name_table *table, const char *name, size_t length)
{
    size_t before = length != 0 ? length - 1 : 0;
    uint32_t last = length != 0 ? (unsigned char)name[before] : 0;
    return (uint32_t)XXH3_64bits_withSeed(name, before, table->seed) + last;
}

static bool is_name(const struct named *named, const char *name, size_t length)
{
    return named->length == length && memcmp(named->name, name, length) == 0;
}

/* The slot of the name, or the free one for it. Half of the slots at least are free. */
static struct name_slot *find_slot(const struct name_table *table, uint32_t hash, const char *name,
                                   size_t length)
{
    size_t last = table->capacity - 1, i = hash & last;
    while (table->slots[i].number != 0) {
        const struct name_slot *slot = &table->slots[i];
        if (slot->hash == hash && is_name(&table->names[slot->number - 1], name, length))
            break;
        i = (i + 1) & last;
    }
    return &table->slots[i];
}

/* NULL: there is no such name. *slot: where it is to go, with which hash; NULL: there are none. */
static const struct named *find_named(const struct name_table *table, const char *name,
                                      size_t length, struct name_slot **slot, uint32_t *hash)
{
    *slot = NULL;
    if (table->slots != NULL) {
        *hash = hash_name(table, name, length);
        *slot = find_slot(table, *hash, name, length);
        return (*slot)->number != 0 ? &table->names[(*slot)->number - 1] : NULL;
    }
    for (size_t i = 0; i < table->count; i++)
        if (is_name(&table->names[i], name, length))
            return &table->names[i];
    return NULL;
}

static dcp_status grow_names(struct name_table *table, size_t room)
{
    if (table->count >= MOST)
        return error_no_memory(SIZE_MAX, "a name table");
    struct named *names = memory_reallocate_array(table->names, room, sizeof *names);
    if (names == NULL)
        return error_no_memory(room * sizeof *names, "a name table");
    table->names = names;
    table->room = room;
    return DCP_OK;
}

/* The name is not there. */
static void put_slot(struct name_slot *slots, size_t capacity, struct name_slot slot)
{
    size_t i = slot.hash & (capacity - 1);
    while (slots[i].number != 0)
        i = (i + 1) & (capacity - 1);
    slots[i] = slot;
}

static dcp_status grow_slots(struct name_table *table, size_t capacity)
{
    struct name_slot *slots = memory_allocate_zeroed(capacity, sizeof *slots);
    if (slots == NULL)
        return error_no_memory(capacity * sizeof *slots, "a name table");
    for (size_t i = 0; i < table->capacity; i++)
        if (table->slots[i].number != 0)
            put_slot(slots, capacity, table->slots[i]);
    for (size_t i = 0; table->slots == NULL && i < table->count; i++) {
        const struct named *named = &table->names[i];
        put_slot(slots, capacity,
                 (struct name_slot){hash_name(table, named->name, named->length), (uint32_t)i + 1});
    }
    memory_release(table->slots);
    table->slots = slots;
    table->capacity = capacity;
    return DCP_OK;
}

/* For one name more. */
static dcp_status make_room(struct name_table *table)
{
    if (table->count == table->room)
        RETURN_IF_ERROR(grow_names(table, table->room != 0 ? table->room * 2 : FEW));
    if (table->count >= FEW && table->count >= table->capacity / 2)
        RETURN_IF_ERROR(
            grow_slots(table, table->capacity != 0 ? table->capacity * 2 : SLOTS_FIRST));
    return DCP_OK;
}

dcp_status name_table_reserve(struct name_table *table, size_t count)
{
    size_t capacity = SLOTS_FIRST;
    if (count > MOST)
        return error_no_memory(SIZE_MAX, "a name table");
    while (capacity / 2 < count)
        capacity *= 2;
    if (count > table->room)
        RETURN_IF_ERROR(grow_names(table, count));
    return count > FEW && capacity > table->capacity ? grow_slots(table, capacity) : DCP_OK;
}

dcp_status name_table_add(struct name_table *table, const char *name, size_t length,
                          uint64_t *value, bool *existing)
{
    RETURN_IF_ERROR(make_room(table));
    struct name_slot *slot;
    uint32_t hash = 0;
    const struct named *known = find_named(table, name, length, &slot, &hash);
    *existing = known != NULL;
    if (*existing) {
        *value = known->value;
        return DCP_OK;
    }
    table->names[table->count++] = (struct named){name, length, *value};
    if (slot != NULL)
        *slot = (struct name_slot){hash, (uint32_t)table->count};
    return DCP_OK;
}

bool name_table_find(const struct name_table *table, const char *name, size_t length,
                     uint64_t *value)
{
    struct name_slot *slot;
    uint32_t hash;
    const struct named *known = find_named(table, name, length, &slot, &hash);
    if (known == NULL)
        return false;
    *value = known->value;
    return true;
}
