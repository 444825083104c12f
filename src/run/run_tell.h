/* SPDX-License-Identifier: BSD-3-Clause */
/* What rank 0 decides, told to the other ranks of a run: field by field, so that what arrives is
 * checked, as ranks may run other versions of the library. */
#ifndef RUN_TELL_H
#define RUN_TELL_H

#include "run/run_choose.h"
#include "run/run_manager.h"

/* Collective. status: rank 0's; a failure there, or of any rank, is that of all ranks. */
dcp_status run_tell_own(const dcp_run *run, dcp_status status, struct run_own *own);
dcp_status run_tell_choice(const dcp_run *run, dcp_status status, struct run_choice *choice);
/* The same for yes or no; with no exchange of statuses. */
dcp_status run_tell_flag(const dcp_run *run, bool *flag);

#endif
