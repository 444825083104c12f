/* SPDX-License-Identifier: BSD-3-Clause */
/* What differs between what is wanted and what is stored, on any rank, made known to all. */
#ifndef CHECKPOINT_LOAD_LOAD_GATHER_H
#define CHECKPOINT_LOAD_LOAD_GATHER_H

#include "dcp/load.h"
#include "plan/load/load_plan.h"

/* All ranks' differences to the coordinator, and the union of them back. Collective; status: how
 * this rank came to its own. all: free it in either case. decoded: a failure of this rank alone,
 * after success, that the others do not know of yet. */
dcp_status load_gather_differences(const dcp_load_options *options, const struct metadata *metadata,
                                   const struct load_names *names, dcp_status status,
                                   const struct load_differences *mine,
                                   struct load_differences *all, dcp_status *decoded);

#endif
