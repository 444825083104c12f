/* SPDX-License-Identifier: BSD-3-Clause */
/* What mirrors give back to a run. */
#ifndef RUN_RUN_MIRROR_BACK_H
#define RUN_RUN_MIRROR_BACK_H

#include "run/run_choose.h"

/* Which run the mirrors are of. *found: one of them is a run; if none is, one that cannot be asked
 * is a failure. At rank 0. */
dcp_status run_mirror_identity(const dcp_run_options *options, struct run_own *own, bool *found);

/* Before anything is chosen: a checkpoint that a mirror has and the run lacks, or has an older save
 * of, is copied to the run. Says so in the chooser's reasons. Collective. */
dcp_status run_mirror_back(dcp_run *run, struct run_chooser *chooser);
/* One that did not load is made good from a mirror that has the same save. Collective. */
dcp_status run_mirror_repair(dcp_run *run, const struct run_choice *choice, bool *repaired);

#endif
