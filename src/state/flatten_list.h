/* SPDX-License-Identifier: BSD-3-Clause */
/* Which lists flattening enters. */
#ifndef STATE_FLATTEN_LIST_H
#define STATE_FLATTEN_LIST_H

#include "state/node.h"

/* What flattening marks containers with. */
enum flatten_mark {
    MARK_NONE = 0,
    MARK_OPEN = 1,    /* a list that is being examined */
    MARK_LEAF = 2,    /* a list that is an object */
    MARK_ENTERED = 3, /* a list that is to be entered */
    MARK_VISITED = 4  /* a list or dict that was entered */
};

/* Whether a list contains a tensor, a dict, or, at any depth of lists, such a list. The result is
 * stored in the nodes as marks of this walk, so that each list is examined once. */
dcp_status list_is_entered(dcp_state *list, uint32_t walk, bool *entered);

#endif
