/* SPDX-License-Identifier: BSD-3-Clause */
/* What a rank's tree wants of a checkpoint, as bytes, so that a later tree can be compared: names,
 * kinds, dtypes, shapes and chunks, in their order; neither values nor memory. Exact, where a hash
 * could be mistaken. */
#ifndef PLAN_LOAD_LOAD_STRUCTURE_H
#define PLAN_LOAD_LOAD_STRUCTURE_H

#include "base/buffer.h"
#include "state/flatten.h"

dcp_status load_structure_append(const struct flat_state *flat, struct buffer *out);
/* Whether load_structure_append() would give these bytes, all of them. */
bool load_structure_is(const struct flat_state *flat, const void *bytes, size_t size);

#endif
