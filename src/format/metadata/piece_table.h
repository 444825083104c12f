/* SPDX-License-Identifier: BSD-3-Clause */
/* Pieces by what identifies them: the entry, and the offset of their box. */
#ifndef FORMAT_METADATA_PIECE_TABLE_H
#define FORMAT_METADATA_PIECE_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "dcp/status.h"

struct piece_key {
    uint32_t entry;
    int32_t ndim; /* of the offset; -1: none, as objects have it */
    const int64_t *offset;
};

struct piece_slot;

struct piece_table {
    struct piece_slot *slots;
    size_t mask;
    uint64_t seed;
    const struct piece_key *keys; /* borrowed: keys[i] was added as position i */
};

/* keys: room for capacity of them, filled by the caller. */
dcp_status piece_table_init(struct piece_table *table, const struct piece_key *keys,
                            size_t capacity);
void piece_table_free(struct piece_table *table);
/* The position of an equal key, or PIECE_NOT_FOUND. */
#define PIECE_NOT_FOUND SIZE_MAX
size_t piece_table_find(const struct piece_table *table, const struct piece_key *key);
/* The position of a key equal to keys[position]; if there is none, adds that key at `position`. */
size_t piece_table_add(struct piece_table *table, size_t position);

#endif
