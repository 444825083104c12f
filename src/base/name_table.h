/* SPDX-License-Identifier: BSD-3-Clause */
/* A hash table from names to 64-bit values. Names are borrowed. */
#ifndef BASE_NAME_TABLE_H
#define BASE_NAME_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "dcp/status.h"

struct named;
struct name_slot;

/* Names lie in the order in which they were added, and beside them is a small index by hash: who
 * looks for many of them in about that order waits for memory once a name, not for each thing that
 * is compared. */
struct name_table {
    struct named *names;
    size_t count;
    size_t room;             /* for names */
    struct name_slot *slots; /* NULL: there are few names */
    size_t capacity;         /* of slots, a power of two */
    uint64_t seed;           /* of the hash */
};

void name_table_init(struct name_table *table);
void name_table_free(struct name_table *table);
/* Adds a name, borrowed for the table's life. If the table has it already, *existing is true and
 * *value is set to the stored value; otherwise *existing is false and *value is stored. */
dcp_status name_table_add(struct name_table *table, const char *name, size_t length,
                          uint64_t *value, bool *existing);
/* Room for so many names in all, so that adding them takes no more than they need. */
dcp_status name_table_reserve(struct name_table *table, size_t count);
bool name_table_find(const struct name_table *table, const char *name, size_t length,
                     uint64_t *value);

#endif
