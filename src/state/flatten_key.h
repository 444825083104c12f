/* SPDX-License-Identifier: BSD-3-Clause */
/* Dict keys as text, and numbers as Python writes them. */
#ifndef STATE_FLATTEN_KEY_H
#define STATE_FLATTEN_KEY_H

#include "base/buffer.h"
#include "state/node.h"

/* Appends Python's str(key): "0", "True", "(1, 'a')". Errors: DCP_ERR_UNSUPPORTED for keys whose
 * text is not known (opaque objects, deeply nested tuples). */
dcp_status key_append(struct buffer *out, const dcp_state *key);

#endif
