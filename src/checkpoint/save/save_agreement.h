/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks agree on before planning, each in one collective. */
#ifndef CHECKPOINT_SAVE_SAVE_AGREEMENT_H
#define CHECKPOINT_SAVE_SAVE_AGREEMENT_H

#include "dcp/save.h"
#include "state/write_plan.h"

/* Checks that all ranks have the same options and path; otherwise DCP_ERR_ARGUMENT on all of them,
 * which names the option, two ranks and their values. grown: objects that this rank writes have
 * other lengths than in the cache. Finds out whether the planning can be reused. */
dcp_status save_agree(dcp_saving *saving, bool grown, dcp_status status);
/* Whether every rank's plan implies what all ranks hold, and all imply the same; and whether
 * lengths of objects differ. */
dcp_status save_agree_alone(const dcp_save_options *options, const struct save_plan *plan,
                            bool *alone, bool *lengths_differ);

#endif
