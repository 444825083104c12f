/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/operation.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/sized.h"

dcp_status operation_check_figures(const dcp_figures *theirs)
{
    if (theirs && theirs->size_of < sizeof theirs->size_of)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "figures has size_of %zu, expected sizeof(dcp_figures)",
                             theirs->size_of);
    return DCP_OK;
}

void operation_start(struct operation *operation)
{
    *operation = (struct operation){.began_ns = clock_monotonic_ns()};
    operation->phase_began_ns = operation->began_ns;
}

void operation_enter(struct operation *operation, enum operation_phase phase)
{
    int64_t now = clock_monotonic_ns();
    operation->phase_ns[operation->phase] += now - operation->phase_began_ns;
    operation->phase_began_ns = now;
    operation->phase = phase;
}

static double seconds(int64_t ns)
{
    return (double)ns * 1e-9;
}

void operation_finish(struct operation *operation, dcp_figures *theirs)
{
    dcp_figures *figures = &operation->figures;
    operation_enter(operation, PHASE_NONE);
    figures->total_seconds = seconds(operation->phase_began_ns - operation->began_ns);
    figures->planning_seconds = seconds(operation->phase_ns[PHASE_PLANNING]);
    figures->staging_seconds = seconds(operation->phase_ns[PHASE_STAGING]);
    figures->reading_seconds = seconds(operation->phase_ns[PHASE_READING]);
    figures->commit_seconds = seconds(operation->phase_ns[PHASE_COMMIT]);
    figures->writing_seconds =
        seconds(operation->phase_ns[PHASE_WRITING]) - figures->syncing_seconds;
    if (!theirs || theirs->size_of < sizeof theirs->size_of)
        return;
    figures->size_of = theirs->size_of;
    sized_write(theirs, theirs->size_of, figures, sizeof *figures);
}
