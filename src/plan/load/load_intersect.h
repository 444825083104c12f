/* SPDX-License-Identifier: BSD-3-Clause */
/* Inside of load planning: which stored pieces of a tensor a box touches. */
#ifndef PLAN_LOAD_LOAD_INTERSECT_H
#define PLAN_LOAD_LOAD_INTERSECT_H

#include "state/metadata.h"

/* The pieces of one tensor. If many boxes are to be looked up among many pieces, they are sorted by
 * where they start in the dimension that tells them apart best. */
struct piece_index {
    const struct metadata_entry *entry;
    int32_t dim;
    uint32_t *order; /* of the pieces; NULL: as they are */
    int64_t *reach;  /* reach[i]: the largest end among order[0..i] */
};

dcp_status piece_index_init(struct piece_index *index, const struct metadata_entry *entry,
                            size_t lookups);
/* Only pieces first to end - 1 (of the index) may touch the box. */
void piece_index_find(const struct piece_index *index, struct box box, size_t *first, size_t *end);
/* The piece at a place of the index. */
uint32_t piece_index_at(const struct piece_index *index, size_t place);
void piece_index_free(struct piece_index *index);

struct box piece_box(const struct metadata_entry *entry, uint32_t piece);

#endif
