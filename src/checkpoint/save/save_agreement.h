/* SPDX-License-Identifier: BSD-3-Clause */
/* What all ranks find out together before they plan, each time in one collective. */
#ifndef CHECKPOINT_SAVE_SAVE_AGREEMENT_H
#define CHECKPOINT_SAVE_SAVE_AGREEMENT_H

#include "dcp/save.h"
#include "state/write_plan.h"

/* That all ranks were given the same options and path: else DCP_ERR_ARGUMENT on all of them, which
 * names the option, two ranks, and what each was given. grown: objects that this rank writes have
 * other lengths than the cache knows. Finds out whether the planning can be reused. */
dcp_status save_agree(dcp_saving *saving, bool grown, dcp_status status);
/* Whether every rank's plan tells what all ranks hold, and all tell the same; and whether lengths
 * of objects differ. */
dcp_status save_agree_alone(const dcp_save_options *options, const struct save_plan *plan,
                            bool *alone, bool *lengths_differ);

#endif
