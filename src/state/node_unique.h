/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys of dicts and elements of sets that have parts: tuples and frozensets. They are compared only
 * when they are complete, all of a container at once. */
#ifndef STATE_NODE_UNIQUE_H
#define STATE_NODE_UNIQUE_H

#include "state/node.h"

/* Of a container that was read: as in Python, the first of equal keys stays with the last one's
 * value, and the first of equal elements of a set. Parts may be shared, so that comparing takes
 * more than reading: each byte is taken from the allowance. DCP_ERR_FORMAT: it is spent, or a part
 * has no hash. */
dcp_status node_settle(struct state_pool *pool, dcp_state *container, uint64_t *allowance);

/* Of a container that was built: DCP_ERR_DUPLICATE if two are equal, DCP_ERR_ARGUMENT if a part has
 * no hash. */
dcp_status node_check_unique(const dcp_state *container);

/* For each element of a set the position of its equal in another set, SIZE_MAX: it has none. */
dcp_status node_match(const dcp_state *set, const dcp_state *other, size_t *positions);

/* The check of dcp_state_status() for a tree whose building calls have all succeeded: each pair has
 * a value, and node_check_unique() holds for each container. */
dcp_status state_check_complete(struct state_root *root);

#endif
