/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for a communicator, and giving up on it. Only one of our own is ever aborted. */
#include <time.h>

#include "nccl_group.h"

/* Pauses between polls of a collective. */
enum { PAUSE_NS_MIN = 10000, PAUSE_NS_MAX = 1000000 };

/* How long finalizing a communicator of ours may take; all ranks must do it. */
static const double farewell_seconds = 5;

double nccl_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

dcp_status nccl_error(const struct nccl_group *group, ncclResult_t code, const char *call)
{
    const char *message = ncclGetLastError(group->communicator);
    bool described = message != NULL && *message != '\0';
    return dcp_error_set(DCP_ERR_GROUP, "%s failed: %s%s%s", call, ncclGetErrorString(code),
                         described ? ": " : "", described ? message : "");
}

static dcp_status look(const struct nccl_group *group, bool on_device, bool *ended)
{
    ncclResult_t state = ncclSuccess;
    ncclResult_t code = ncclCommGetAsyncError(group->communicator, &state);
    if (code == ncclSuccess)
        code = state;
    if (code != ncclSuccess && code != ncclInProgress)
        return nccl_error(group, code, "a collective of NCCL");
    *ended = code == ncclSuccess;
    if (!*ended || !on_device)
        return DCP_OK;
    cudaError_t done = cudaEventQuery(group->done);
    *ended = done == cudaSuccess;
    return *ended || done == cudaErrorNotReady ? DCP_OK : cuda_error(done, "cudaEventQuery");
}

/* Whether the caller's earlier work on the stream is still under way. */
static bool is_behind_others(const struct nccl_group *group)
{
    return group->begun != NULL && cudaEventQuery(group->begun) == cudaErrorNotReady;
}

static dcp_status fail_for_missing(const struct nccl_group *group, const dcp_collective *call)
{
    if (is_behind_others(group))
        return dcp_error_set(DCP_ERR_TIMEOUT,
                             "earlier work on the stream did not end within %g seconds",
                             call->timeout_seconds);
    return dcp_error_set(DCP_ERR_TIMEOUT, "not all of %d ranks made this call within %g seconds",
                         group->size, call->timeout_seconds);
}

static void pause_longer(struct timespec *pause)
{
    nanosleep(pause, NULL);
    if (pause->tv_nsec < PAUSE_NS_MAX)
        pause->tv_nsec *= 2;
}

dcp_status nccl_wait(const struct nccl_group *group, const dcp_collective *call, double deadline,
                     bool on_device)
{
    struct timespec pause = {.tv_nsec = PAUSE_NS_MIN};
    double began = nccl_now(), next = dcp_collective_log_wait(call, 0, NULL);
    bool ended = false;
    for (;;) {
        double now = nccl_now();
        dcp_status status = look(group, on_device, &ended);
        if (status != DCP_OK || ended)
            return status;
        if (now >= deadline)
            return fail_for_missing(group, call);
        if (now - began >= next)
            next = dcp_collective_log_wait(
                call, now - began, is_behind_others(group) ? "earlier work on the stream" : NULL);
        pause_longer(&pause);
    }
}

/* Aborting waits for the device, so it would wait for the caller's work there, too. */
void nccl_give_up(struct nccl_group *group)
{
    group->abandoned = true;
    if (!group->owned || group->communicator == NULL || is_behind_others(group))
        return;
    ncclCommAbort(group->communicator);
    group->communicator = NULL;
}

/* Whether the communicator is finalized on all ranks. */
static bool finalize(ncclComm_t communicator)
{
    struct timespec pause = {.tv_nsec = PAUSE_NS_MIN};
    double deadline = nccl_now() + farewell_seconds;
    ncclResult_t code = ncclCommFinalize(communicator), state = ncclSuccess;
    while (code == ncclSuccess || code == ncclInProgress) {
        bool late = nccl_now() >= deadline;
        code = ncclCommGetAsyncError(communicator, &state);
        if (code == ncclSuccess && state != ncclInProgress)
            return state == ncclSuccess;
        if (late)
            break;
        pause_longer(&pause);
    }
    return false;
}

void nccl_release_communicator(struct nccl_group *group)
{
    if (group->abandoned)
        nccl_give_up(group); /* earlier work on the stream may have delayed it */
    if (!group->owned || group->communicator == NULL || group->abandoned)
        return;
    if (finalize(group->communicator))
        ncclCommDestroy(group->communicator);
    else
        ncclCommAbort(group->communicator);
    group->communicator = NULL;
}
