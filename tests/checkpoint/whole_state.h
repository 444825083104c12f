/* SPDX-License-Identifier: BSD-3-Clause */
/* Checkpoints as a whole, whatever is in them: loaded in two ways, they must be equal. */
#ifndef TESTS_WHOLE_STATE_H
#define TESTS_WHOLE_STATE_H

#include "dcp.h"

/* A tree that wants all that a checkpoint has: tensors without memory, objects as None. */
dcp_state *whole_state_of(const char *path);
void whole_states_must_be_equal(const dcp_state *a, const dcp_state *b);

#endif
