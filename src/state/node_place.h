/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef STATE_NODE_PLACE_H
#define STATE_NODE_PLACE_H

#include "state/node.h"

/* Puts a node of its own pool below a dict, at a path of at least one part. Containers on the way
 * are made where they are missing: dicts where keys follow, lists where positions do. Elements of a
 * list must come in their order. Errors: DCP_ERR_DUPLICATE where something is already,
 * DCP_ERR_FORMAT for paths that cannot be. */
dcp_status node_place(dcp_state *into, const dcp_path_part *path, size_t length, dcp_state *node);

#endif
