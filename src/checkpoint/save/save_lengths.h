/* SPDX-License-Identifier: BSD-3-Clause */
/* Lengths of objects, where ranks know all of the plan but those. */
#ifndef CHECKPOINT_SAVE_SAVE_LENGTHS_H
#define CHECKPOINT_SAVE_SAVE_LENGTHS_H

#include "dcp/save.h"
#include "plan/save/joint_plan.h"

/* Brings the metadata of a reused plan up to date with the lengths of the objects that each rank
 * writes. travel: those of other ranks than the coordinator, too. */
dcp_status save_lengths_update(dcp_saving *saving, bool travel, dcp_status status);
/* Gives all ranks those of rank 0, which writes the objects that all ranks have. */
dcp_status save_lengths_share(dcp_saving *saving, struct joint_plan *joint, dcp_status status);

#endif
