/* SPDX-License-Identifier: BSD-3-Clause */
#include "group/collective.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

enum { DEFAULT_SECONDS = 1800 };

dcp_status collective_for_caller(const char *function, const char *phase, double timeout_seconds,
                                 dcp_collective *call)
{
    *call = (dcp_collective){phase, timeout_seconds == 0 ? DEFAULT_SECONDS : timeout_seconds};
    if (timeout_seconds >= 0 && timeout_seconds <= 1e9)
        return DCP_OK;
    call->timeout_seconds = DEFAULT_SECONDS;
    return dcp_error_set(DCP_ERR_ARGUMENT, "%s: the timeout is %g seconds, expected 0 to 1e9",
                         function, timeout_seconds);
}

double dcp_collective_log_wait(const dcp_collective *call, double waited_seconds,
                               const char *missing)
{
    double after = log_waits_after();
    if (after == 0)
        return HUGE_VAL;
    if (waited_seconds < after)
        return after;
    log_line(DCP_LOG_WARNING, "%s: waiting for %s for %.3g s so far, for at most %g s", call->phase,
             missing != NULL ? missing : "other ranks", waited_seconds, call->timeout_seconds);
    return 2 * waited_seconds;
}

dcp_status collective_check(const dcp_group *group)
{
    if (group->broken.status != DCP_OK)
        return dcp_error_set(DCP_ERR_STATE, "the group is broken: %s", group->broken.text);
    return DCP_OK;
}

void collective_name(const dcp_group *group, const dcp_collective *call, struct collective_run *run)
{
    run->call = *call;
    if (group->operation != NULL) {
        snprintf(run->phase, sizeof run->phase, "%s: %s", group->operation, call->phase);
        run->call.phase = run->phase;
    }
}

/* Every operation runs between run_begin() and run_end(). */
static dcp_status run_begin(const dcp_group *group, const dcp_collective *call,
                            struct collective_run *run)
{
    RETURN_IF_ERROR(collective_check(group));
    collective_name(group, call, run);
    error_clear(); /* so that a message found afterwards is the operation's own */
    return DCP_OK;
}

static dcp_status run_end(dcp_group *group, const struct collective_run *run, dcp_status status)
{
    if (status == DCP_OK)
        return DCP_OK;
    status = error_checked(status, "a collective");
    /* The message of a broken group names the phase already. */
    if (status != DCP_ERR_STATE)
        error_prefix(status, "%s", run->call.phase);
    error_save(&group->broken);
    return status;
}

dcp_status collective_all_gather(dcp_group *group, const dcp_collective *call, const void *send,
                                 size_t bytes, void *receive)
{
    struct collective_run run;
    RETURN_IF_ERROR(run_begin(group, call, &run));
    return run_end(group, &run,
                   group->operations.all_gather(group->context, &run.call, send, bytes, receive));
}

dcp_status collective_broadcast(dcp_group *group, const dcp_collective *call, int root, void *data,
                                size_t bytes)
{
    struct collective_run run;
    RETURN_IF_ERROR(run_begin(group, call, &run));
    return run_end(group, &run,
                   group->operations.broadcast(group->context, &run.call, root, data, bytes));
}

/* The largest message that a rank receives without being its destination. */
static size_t largest_besides(const dcp_group *group, const size_t *sizes, int besides)
{
    size_t largest = 0;
    for (int rank = 0; rank < group->size; rank++)
        if (rank != besides && sizes[rank] > largest)
            largest = sizes[rank];
    return largest;
}

size_t collective_gather_scratch(const dcp_group *group, int root, const size_t *sizes)
{
    if (group->operations.gather != NULL || group->rank == root)
        return 0;
    return largest_besides(group, sizes, group->rank);
}

size_t collective_scatter_scratch(const dcp_group *group, int root, const size_t *sizes)
{
    if (group->operations.scatter != NULL || group->rank == root)
        return 0;
    return largest_besides(group, sizes, group->rank);
}

/* Every rank that has bytes broadcasts them; only the root keeps them. */
static dcp_status gather_by_broadcasts(dcp_group *group, const dcp_collective *call, int root,
                                       const void *send, const size_t *sizes, void *scratch,
                                       void *receive)
{
    unsigned char *place = receive;
    for (int rank = 0; rank < group->size; rank++) {
        if (sizes[rank] == 0)
            continue;
        void *data = scratch;
        if (group->rank == root)
            data = place;
        else if (group->rank == rank)
            data = (void *)send; /* a broadcast only reads its root's memory */
        if (group->rank == root && rank == root)
            memcpy(place, send, sizes[rank]);
        else if (rank != root)
            RETURN_IF_ERROR(collective_broadcast(group, call, rank, data, sizes[rank]));
        if (group->rank == root)
            place += sizes[rank];
    }
    return DCP_OK;
}

dcp_status collective_gather(dcp_group *group, const dcp_collective *call, int root,
                             const void *send, const size_t *sizes, void *scratch, void *receive)
{
    if (group->operations.gather == NULL)
        return gather_by_broadcasts(group, call, root, send, sizes, scratch, receive);
    struct collective_run run;
    RETURN_IF_ERROR(run_begin(group, call, &run));
    bool is_root = group->rank == root;
    return run_end(group, &run,
                   group->operations.gather(group->context, &run.call, root, send,
                                            sizes[group->rank], receive, is_root ? sizes : NULL));
}

static dcp_status scatter_by_broadcasts(dcp_group *group, const dcp_collective *call, int root,
                                        const void *send, const size_t *sizes, void *scratch,
                                        void *receive)
{
    const unsigned char *place = send;
    for (int rank = 0; rank < group->size; rank++) {
        if (sizes[rank] == 0)
            continue;
        void *data = group->rank == root ? (void *)place : group->rank == rank ? receive : scratch;
        if (rank != root)
            RETURN_IF_ERROR(collective_broadcast(group, call, root, data, sizes[rank]));
        else if (group->rank == root)
            memcpy(receive, place, sizes[rank]);
        if (group->rank == root)
            place += sizes[rank];
    }
    return DCP_OK;
}

dcp_status collective_scatter(dcp_group *group, const dcp_collective *call, int root,
                              const void *send, const size_t *sizes, void *scratch, void *receive)
{
    if (group->operations.scatter == NULL)
        return scatter_by_broadcasts(group, call, root, send, sizes, scratch, receive);
    struct collective_run run;
    RETURN_IF_ERROR(run_begin(group, call, &run));
    bool is_root = group->rank == root;
    return run_end(group, &run,
                   group->operations.scatter(group->context, &run.call, root, send,
                                             is_root ? sizes : NULL, receive, sizes[group->rank]));
}

dcp_status collective_all_to_all(dcp_group *group, const dcp_collective *call, const void *send,
                                 const size_t *send_sizes, const size_t *send_offsets,
                                 void *receive, const size_t *receive_sizes,
                                 const size_t *receive_offsets)
{
    struct collective_run run;
    RETURN_IF_ERROR(run_begin(group, call, &run));
    return run_end(group, &run,
                   group->operations.all_to_all(group->context, &run.call, send, send_sizes,
                                                send_offsets, receive, receive_sizes,
                                                receive_offsets));
}
