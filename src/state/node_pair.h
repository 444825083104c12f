/* SPDX-License-Identifier: BSD-3-Clause */
/* Pairs of a dict that are being built: a node that takes the key first and then the value, and
 * puts both into the dict. */
#ifndef STATE_NODE_PAIR_H
#define STATE_NODE_PAIR_H

#include "state/node.h"

/* Begins a pair; NULL: no memory, with the message set. */
dcp_state *node_pair_new(struct state_pool *pool, dcp_state *dict);
/* Checks that the pair is not complete yet. */
dcp_status node_pair_check(const dcp_state *node);
/* Adds its key or its value. DCP_ERR_DUPLICATE: the key is in the dict already. */
dcp_status node_pair_add(dcp_state *node, dcp_state *added);
/* Takes it off the root's list of pairs without a value. */
void node_pair_close(dcp_state *node);

#endif
