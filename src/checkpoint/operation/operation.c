/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/operation/operation.h"

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

dcp_status operation_start(struct operation *operation, dcp_progress_function progress,
                           void *context, uint64_t memory_limit)
{
    *operation = (struct operation){.began_ns = clock_monotonic_ns()};
    operation->phase_seconds = &operation->figures.planning_seconds;
    operation->phase_began_ns = operation->began_ns;
    progress_init(&operation->progress, progress, context);
    operation->account = memory_account_open(memory_limit);
    operation->account_before = memory_account_enter(operation->account);
    return operation->account ? DCP_OK : error_no_memory(0, "an account of memory");
}

static double *seconds_of(dcp_figures *figures, dcp_phase phase)
{
    switch (phase) {
    case DCP_PHASE_STAGING:
        return &figures->staging_seconds;
    case DCP_PHASE_WRITING:
        return &figures->writing_seconds;
    case DCP_PHASE_READING:
        return &figures->reading_seconds;
    case DCP_PHASE_COMMIT:
        return &figures->commit_seconds;
    case DCP_PHASE_PLANNING:
        break;
    }
    return &figures->planning_seconds;
}

static void end_phase(struct operation *operation)
{
    int64_t now = clock_monotonic_ns();
    *operation->phase_seconds += (double)(now - operation->phase_began_ns) * 1e-9;
    operation->phase_began_ns = now;
}

dcp_status operation_enter_moving(struct operation *operation, dcp_phase phase, uint64_t bytes,
                                  dcp_status status)
{
    end_phase(operation);
    operation->phase_seconds = seconds_of(&operation->figures, phase);
    return status == DCP_OK ? progress_enter(&operation->progress, phase, bytes) : status;
}

dcp_status operation_enter(struct operation *operation, dcp_phase phase, dcp_status status)
{
    return operation_enter_moving(operation, phase, operation->progress.reported.bytes_total,
                                  status);
}

void operation_finish(struct operation *operation, dcp_figures *theirs)
{
    dcp_figures *figures = &operation->figures;
    end_phase(operation);
    progress_free(&operation->progress);
    memory_account_enter(operation->account_before);
    if (operation->account)
        figures->peak_memory = memory_account_peak(operation->account);
    memory_account_close(operation->account);
    figures->total_seconds = (double)(operation->phase_began_ns - operation->began_ns) * 1e-9;
    figures->writing_seconds -= figures->syncing_seconds;
    if (!theirs || theirs->size_of < sizeof theirs->size_of)
        return;
    figures->size_of = theirs->size_of;
    sized_write(theirs, theirs->size_of, figures, sizeof *figures);
}
