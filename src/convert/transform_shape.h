/* SPDX-License-Identifier: BSD-3-Clause */
/* What one rule makes of tensors: their shapes, and recipes for their elements. */
#ifndef CONVERT_TRANSFORM_SHAPE_H
#define CONVERT_TRANSFORM_SHAPE_H

#include "convert/transform.h"

/* Of one tensor another: TRANSFORM_TRANSPOSE, PERMUTE, UNPERMUTE, CAST, PAD and CUT. */
dcp_status transform_turn(const struct transform_rule *rule, struct arena *arena,
                          const struct convert_item *input, struct convert_item *item);
/* Of several one: TRANSFORM_JOIN and STACK. */
dcp_status transform_unite(const struct transform_rule *rule, struct arena *arena,
                           const struct convert_item *inputs, size_t count,
                           struct convert_item *item);
/* How many TRANSFORM_SPLIT and UNSTACK make of one. */
dcp_status transform_divide_count(const struct transform_rule *rule,
                                  const struct convert_item *input, size_t *count);
/* One of them. */
dcp_status transform_divide(const struct transform_rule *rule, struct arena *arena,
                            const struct convert_item *input, size_t part,
                            struct convert_item *item);

#endif
