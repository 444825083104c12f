/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of DTensors: which boxes of a tensor a rank of a mesh has. */
#ifndef CONVERT_SOURCE_PLACED_H
#define CONVERT_SOURCE_PLACED_H

#include "convert/source_parts.h"
#include "dcp/mesh.h"

/* Adds the boxes that an entry of a file has of the tensor that was begun, as the rank of the mesh
 * that the layout is seen from: row-major in the order of the tensor, without what lies between
 * them. Boxes that are there already are replicas. DCP_ERR_SHAPE unless the entry's shape is
 * theirs. */
dcp_status source_parts_add_placed(struct source_parts *parts, size_t file, size_t entry,
                                   const dcp_layout *layout);
/* Whether the boxes that were added have as many elements as the tensor. */
bool source_parts_are_complete(const struct source_parts *parts);
/* Adds one box, unless it is there. */
dcp_status source_parts_add_once(struct source_parts *parts, size_t file, size_t entry,
                                 struct box box, const int64_t *entry_offsets);

#endif
