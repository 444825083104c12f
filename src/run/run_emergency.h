/* SPDX-License-Identifier: BSD-3-Clause */
/* Saves of single ranks when there is no time left: made (run_emergency), and looked for by a
 * resume (run_emergency_find). */
#ifndef RUN_RUN_EMERGENCY_H
#define RUN_RUN_EMERGENCY_H

#include "run/run_choose.h"

enum { RUN_EMERGENCY_PLACES = 2 };

/* Settles where they go. Collective if the options want any. */
dcp_status run_emergency_open(dcp_run *run);
void run_emergency_free(dcp_run *run);
/* Saves if a signal has come, a few times at most; a failure is logged. */
void run_emergency_watch(dcp_run *run);
/* All ranks stop at this step, which they save if they have not. */
void run_emergency_stop(dcp_run *run);
/* Removes what there is of this step and those before it; a failure is logged. */
void run_emergency_clean(dcp_run *run, int64_t step);

/* *step: of a name, which is that of an emergency save. */
bool run_emergency_step(const char *name, int64_t *step, uint64_t *job);
/* The newest that is newer than a step of the run, and was not tried before; at rank 0. */
dcp_status run_emergency_next(struct run_chooser *chooser, int64_t newer_than,
                              struct run_choice *choice);

#endif
