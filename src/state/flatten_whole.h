/* SPDX-License-Identifier: BSD-3-Clause */
/* Which dicts may be one object. */
#ifndef STATE_FLATTEN_WHOLE_H
#define STATE_FLATTEN_WHOLE_H

#include "state/node.h"

/* Whether there is a tensor or a stateful entry in it, at any depth of dicts and lists. */
dcp_status dict_has_tensors(dcp_state *dict, bool *has);

#endif
