/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef STATE_NODE_PATH_H
#define STATE_NODE_PATH_H

#include "state/node.h"

#define NODE_PATH_MAX 256

/* Where a node is in its tree, for messages: ["optimizer"]["state"][0], as far as there is room;
 * "the root"; or "a place that was not found". Looks through the whole tree. Returns text. */
const char *node_path(const dcp_state *node, char text[NODE_PATH_MAX]);

#endif
