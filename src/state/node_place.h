/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef STATE_NODE_PLACE_H
#define STATE_NODE_PLACE_H

#include "state/node.h"

/* Puts a node with its own pool below a dict, at a path of at least one part. Missing containers on
 * the path are created: dicts for keys, lists for positions. Elements of a list must come in order.
 * Errors: DCP_ERR_DUPLICATE if the place is taken, DCP_ERR_FORMAT for impossible paths. */
dcp_status node_place(dcp_state *into, const dcp_path_part *path, size_t length, dcp_state *node);

#endif
