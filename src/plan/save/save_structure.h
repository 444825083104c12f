/* SPDX-License-Identifier: BSD-3-Clause */
/* What a rank holds to save, as bytes, so that a later plan can be compared: names, paths, kinds,
 * dtypes, shapes and chunks, in their order; neither values, nor memory, nor lengths of objects.
 * Exact, where a hash could be mistaken. */
#ifndef PLAN_SAVE_SAVE_STRUCTURE_H
#define PLAN_SAVE_SAVE_STRUCTURE_H

#include "base/buffer.h"
#include "state/write_plan.h"

dcp_status save_structure_append(const struct save_plan *plan, struct buffer *out);
/* Whether save_structure_append() would give these bytes, all of them. */
bool save_structure_is(const struct save_plan *plan, const void *bytes, size_t size);

#endif
