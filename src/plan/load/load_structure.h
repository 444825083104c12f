/* SPDX-License-Identifier: BSD-3-Clause */
/* What a rank's tree wants from a checkpoint, as bytes, to be compared with a later tree's: names,
 * kinds, dtypes, shapes and chunks, in order, without values and memory. Exact, unlike a hash. */
#ifndef PLAN_LOAD_LOAD_STRUCTURE_H
#define PLAN_LOAD_LOAD_STRUCTURE_H

#include "base/buffer.h"
#include "state/flatten.h"

dcp_status load_structure_append(const struct flat_state *flat, struct buffer *out);
/* Whether load_structure_append() would produce exactly these bytes. */
bool load_structure_is(const struct flat_state *flat, const void *bytes, size_t size);

#endif
