/* SPDX-License-Identifier: BSD-3-Clause */
/* Shares lengths of objects, if ranks know everything else of the plan. */
#ifndef CHECKPOINT_SAVE_SAVE_LENGTHS_H
#define CHECKPOINT_SAVE_SAVE_LENGTHS_H

#include "dcp/save.h"
#include "plan/save/joint_plan.h"

/* Updates the metadata of a reused plan with the lengths of the objects that each rank writes.
 * travel: also of other ranks than the coordinator. */
dcp_status save_lengths_update(dcp_saving *saving, bool travel, dcp_status status);
/* Gives all ranks the lengths of rank 0, which writes the objects that all ranks have. */
dcp_status save_lengths_share(dcp_saving *saving, struct joint_plan *joint, dcp_status status);

#endif
