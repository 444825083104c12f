/* SPDX-License-Identifier: BSD-3-Clause */
/* Which lists flattening enters. */
#ifndef STATE_FLATTEN_LIST_H
#define STATE_FLATTEN_LIST_H

#include "state/node.h"

/* Whether a list contains a tensor, a dict, or, at any depth of lists, such a list. What is found
 * out is marked in the nodes under the walk's number, so that each list is looked at once. */
dcp_status list_is_entered(dcp_state *list, uint32_t walk, bool *entered);

#endif
