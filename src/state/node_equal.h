/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef STATE_NODE_EQUAL_H
#define STATE_NODE_EQUAL_H

#include "state/node.h"

/* Whether two values are the same: of equal kinds, floats by their bits (NaN equals itself),
 * tensors by dtype, shape and elements, dicts with their pairs in the same order, sets in any.
 * Tensors must be in host memory. Values that contain themselves, or share so much that they cannot
 * be compared in time, are DCP_ERR_UNSUPPORTED. */
dcp_status node_equal(const dcp_state *left, const dcp_state *right, bool *equal);

#endif
