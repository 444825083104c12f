/* SPDX-License-Identifier: BSD-3-Clause */
/* JSON as nodes of a state tree: the reverse of dcp_state_to_json() for values that JSON has, and
 * for infinities and NaN. */
#ifndef FORMAT_JSON_JSON_STATE_H
#define FORMAT_JSON_JSON_STATE_H

#include "format/json/json_reader.h"
#include "state/node.h"

/* Any value, nested at most JSON_DEPTH_MAX deep. Ints are exact, of up to 4096 digits; other
 * numbers are the nearest double, and DCP_ERR_FORMAT beyond the largest. Of duplicate keys, the
 * last one counts. *value lives in the pool. */
dcp_status json_read_state(struct json_reader *reader, struct state_pool *pool, dcp_state **value);

#endif
