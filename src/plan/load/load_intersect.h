/* SPDX-License-Identifier: BSD-3-Clause */
/* Internal to load planning: finds the stored pieces of a tensor that a box intersects. */
#ifndef PLAN_LOAD_LOAD_INTERSECT_H
#define PLAN_LOAD_LOAD_INTERSECT_H

#include "state/metadata.h"

/* The pieces of one tensor. For many look-ups among many pieces, they are sorted by their start in
 * the dimension that separates them best. */
struct piece_index {
    const struct metadata_entry *entry;
    int32_t dim;
    uint32_t *order; /* order of the pieces; NULL: as stored */
    int64_t *reach;  /* reach[i]: the largest end among order[0..i] */
};

dcp_status piece_index_init(struct piece_index *index, const struct metadata_entry *entry,
                            size_t lookups);
/* Only pieces first to end - 1 of the index can intersect the box. */
void piece_index_find(const struct piece_index *index, struct box box, size_t *first, size_t *end);
/* The piece at a place of the index. */
uint32_t piece_index_at(const struct piece_index *index, size_t place);
void piece_index_free(struct piece_index *index);

struct box piece_box(const struct metadata_entry *entry, uint32_t piece);

#endif
