/* SPDX-License-Identifier: BSD-3-Clause */
/* What planners and storages of a caller's own want to travel with a plan: a dict, as the stream
 * that an object is stored as. */
#ifndef CHECKPOINT_HOOKS_PLAN_DATA_WIRE_H
#define CHECKPOINT_HOOKS_PLAN_DATA_WIRE_H

#include "base/buffer.h"
#include "plan/plan_data.h"

/* what: for the story. */
dcp_status plan_data_append(const struct plan_data *data, const char *what, struct buffer *out);
/* In place of what is there. DCP_ERR_GROUP for a message that is cut short. */
dcp_status plan_data_read(struct plan_data *data, struct reader *reader);

#endif
