/* SPDX-License-Identifier: BSD-3-Clause */
/* What killed processes leave beside a run's checkpoints. */
#ifndef RUN_RUN_LEFTOVERS_H
#define RUN_RUN_LEFTOVERS_H

#include "run/run_own.h"

/* Removes notes of removals and failed loads whose checkpoint is gone, and files of notes that were
 * about to appear more than an hour before now. names: of the run's directory; now: in seconds. */
dcp_status run_leftovers_remove(const struct run_place *place, const struct run_own *own,
                                const struct run_names *names, int64_t now);

#endif
