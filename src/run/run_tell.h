/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks of a run tell each other, each wait with the run's deadline. What rank 0 decides goes
 * field by field, so that what arrives is checked, as ranks may run other versions of the library.
 */
#ifndef RUN_TELL_H
#define RUN_TELL_H

#include "run/run_choose.h"
#include "run/run_manager.h"

/* Collective: a failure of any rank is that of all ranks. */
dcp_status run_agree(const dcp_run *run, dcp_status mine);
/* Collective: rank 0's bytes, at all ranks. */
dcp_status run_broadcast(const dcp_run *run, void *data, size_t size);
/* Collective: `size` bytes of each rank, in rank order. */
dcp_status run_gather(const dcp_run *run, const void *data, size_t size, void *gathered);

/* Collective. status: rank 0's; a failure there, or of any rank, is that of all ranks. */
dcp_status run_tell_own(const dcp_run *run, dcp_status status, struct run_own *own);
dcp_status run_tell_choice(const dcp_run *run, dcp_status status, struct run_choice *choice);
/* The same for yes or no; with no exchange of statuses. */
dcp_status run_tell_flag(const dcp_run *run, bool *flag);

#endif
