/* SPDX-License-Identifier: BSD-3-Clause */
/* One save or load as a whole: its phases, progress reports and figures. */
#ifndef CHECKPOINT_OPERATION_OPERATION_H
#define CHECKPOINT_OPERATION_OPERATION_H

#include "base/memory_account.h"
#include "base/progress.h"
#include "dcp/figures.h"

struct operation {
    dcp_figures figures; /* so far; a step that knows one sets it */
    int64_t began_ns;
    int64_t phase_began_ns;
    double *phase_seconds; /* where the seconds of the current phase are added */
    struct progress progress;
    struct memory_account *account;
    struct memory_account *account_before;
};

/* Checks that the caller has set size_of. NULL is allowed. */
dcp_status operation_check_figures(const dcp_figures *theirs);
/* Makes the calling thread work for the operation's account until operation_finish(), also on
 * failure. memory_limit 0: none. */
dcp_status operation_start(struct operation *operation, dcp_progress_function progress,
                           void *context, uint64_t memory_limit);
/* Ends the current phase and begins another. Returns status if it is a failure, or
 * DCP_ERR_CANCELLED. */
dcp_status operation_enter(struct operation *operation, dcp_phase phase, dcp_status status);
/* As above, and says how many bytes will be moved. */
dcp_status operation_enter_moving(struct operation *operation, dcp_phase phase, uint64_t bytes,
                                  dcp_status status);
/* Ends the last phase and fills in the figures. theirs has been checked. */
void operation_finish(struct operation *operation, dcp_figures *theirs);

#endif
