/* SPDX-License-Identifier: BSD-3-Clause */
/* One save or load as a whole: its phases, what the caller is told of them, and the figures. */
#ifndef CHECKPOINT_OPERATION_OPERATION_H
#define CHECKPOINT_OPERATION_OPERATION_H

#include "base/memory_account.h"
#include "base/progress.h"
#include "dcp/figures.h"

struct operation {
    dcp_figures figures; /* so far; a step that knows one sets it */
    int64_t began_ns;
    int64_t phase_began_ns;
    double *phase_seconds; /* where the running phase's are added up */
    struct progress progress;
    struct memory_account *account;
    struct memory_account *account_before;
};

/* Whether the caller said how large its struct is. NULL is fine. */
dcp_status operation_check_figures(const dcp_figures *theirs);
/* The calling thread works for the operation's account until it is finished, also on failure.
 * memory_limit: 0: none. */
dcp_status operation_start(struct operation *operation, dcp_progress_function progress,
                           void *context, uint64_t memory_limit);
/* Ends the phase before. Returns status, or DCP_ERR_CANCELLED if there was no failure before. */
dcp_status operation_enter(struct operation *operation, dcp_phase phase, dcp_status status);
/* As above, and says how many bytes will be moved. */
dcp_status operation_enter_moving(struct operation *operation, dcp_phase phase, uint64_t bytes,
                                  dcp_status status);
/* Ends the last phase and tells the figures. theirs has been checked. */
void operation_finish(struct operation *operation, dcp_figures *theirs);

#endif
