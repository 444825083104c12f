/* SPDX-License-Identifier: BSD-3-Clause */
/* Shares the differences between wanted and stored, on any rank, with all ranks. */
#ifndef CHECKPOINT_LOAD_LOAD_GATHER_H
#define CHECKPOINT_LOAD_LOAD_GATHER_H

#include "dcp/load.h"
#include "plan/load/load_plan.h"

/* Gathers all ranks' differences at the coordinator and shares their union. Collective. status:
 * this rank's status so far. all: free in either case. decoded: a later failure of this rank alone,
 * which the others do not know of yet. */
dcp_status load_gather_differences(const dcp_load_options *options, const struct metadata *metadata,
                                   const struct load_names *names, dcp_status status,
                                   const struct load_differences *mine,
                                   struct load_differences *all, dcp_status *decoded);

#endif
