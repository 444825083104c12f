/* SPDX-License-Identifier: BSD-3-Clause */
/* Data that planners and storages send along with a plan: a dict, encoded as a stored object. */
#ifndef CHECKPOINT_HOOKS_PLAN_DATA_WIRE_H
#define CHECKPOINT_HOOKS_PLAN_DATA_WIRE_H

#include "base/buffer.h"
#include "plan/plan_data.h"

/* what: for the message. */
dcp_status plan_data_append(const struct plan_data *data, const char *what, struct buffer *out);
/* Replaces the data. DCP_ERR_GROUP if the message ends too early. */
dcp_status plan_data_read(struct plan_data *data, struct reader *reader);

#endif
