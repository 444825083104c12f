/* SPDX-License-Identifier: BSD-3-Clause */
/* What layouts of other frameworks have beside checkpoints. */
#ifndef RUN_RUN_SIDE_H
#define RUN_RUN_SIDE_H

#include "run/run_own.h"

/* The marks of a run's layout come to name a checkpoint. */
dcp_status run_side_mark(const struct run_place *place, const struct run_own *own, const char *name,
                         int64_t step);

#endif
