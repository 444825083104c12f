/* SPDX-License-Identifier: BSD-3-Clause */
/* One save or load as a whole: its phases, and the figures that the caller asked for. */
#ifndef CHECKPOINT_OPERATION_H
#define CHECKPOINT_OPERATION_H

#include "dcp/figures.h"
#include "dcp/status.h"

enum operation_phase {
    PHASE_NONE,
    PHASE_PLANNING,
    PHASE_STAGING,
    PHASE_WRITING,
    PHASE_READING,
    PHASE_COMMIT,
    PHASES
};

struct operation {
    dcp_figures figures; /* so far; a step that knows one sets it */
    int64_t began_ns;
    enum operation_phase phase;
    int64_t phase_began_ns;
    int64_t phase_ns[PHASES];
};

/* Whether the caller said how large its struct is. NULL is fine. */
dcp_status operation_check_figures(const dcp_figures *theirs);
void operation_start(struct operation *operation);
/* Ends the phase before. */
void operation_enter(struct operation *operation, enum operation_phase phase);
/* Ends the last phase and tells the figures. theirs has been checked. */
void operation_finish(struct operation *operation, dcp_figures *theirs);

#endif
