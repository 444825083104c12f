/* SPDX-License-Identifier: BSD-3-Clause */
/* What a rank has to save, as bytes, to be compared with a later plan: names, paths, kinds, dtypes,
 * shapes and chunks, in order, without values, memory and lengths of objects. Exact, unlike a
 * hash. */
#ifndef PLAN_SAVE_SAVE_STRUCTURE_H
#define PLAN_SAVE_SAVE_STRUCTURE_H

#include "base/buffer.h"
#include "state/write_plan.h"

dcp_status save_structure_append(const struct save_plan *plan, struct buffer *out);
/* Whether save_structure_append() would produce exactly these bytes. */
bool save_structure_is(const struct save_plan *plan, const void *bytes, size_t size);

#endif
