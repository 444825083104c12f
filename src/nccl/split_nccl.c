/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of a group over NCCL, on communicators that are ours. */
#include <stdlib.h>

#include "nccl_group.h"

#if NCCL_CAN_SPLIT

/* All ranks call this right after a collective. A rank without memory (made is NULL) takes part
 * without a color. *late: NCCL may still write to the communicator. */
static dcp_status split_communicator(struct nccl_group *group, const dcp_collective *call,
                                     int color, int key, struct nccl_group *made, bool *late)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    double deadline = nccl_now() + call->timeout_seconds;
    config.blocking = 0; /* so that every wait can have a deadline */
    ncclResult_t code =
        ncclCommSplit(group->communicator, made != NULL ? color : NCCL_SPLIT_NOCOLOR, key,
                      made != NULL ? &made->communicator : &group->no_part, &config);
    if (code != ncclSuccess && code != ncclInProgress)
        return nccl_error(group, code, "ncclCommSplit");
    dcp_status status = nccl_wait(group, call, deadline, false);
    *late = status != DCP_OK;
    if (status != DCP_OK || made == NULL)
        return status;
    if (made->communicator == NULL)
        return dcp_error_set(DCP_ERR_GROUP, "ncclCommSplit made no communicator");
    made->owned = true;
    return nccl_wait(made, call, deadline, false);
}

static dcp_status set_up(struct nccl_group *made, int rank, int size)
{
    dcp_status status = nccl_set_up(made);
    if (status != DCP_OK || (made->rank == rank && made->size == size))
        return status;
    return dcp_error_set(DCP_ERR_GROUP, "rank %d of %d in the communicator, expected %d of %d",
                         made->rank, made->size, rank, size);
}

/* Other ranks of the part may not have got so far, so do not wait for them. */
static void discard(struct nccl_group *made)
{
    if (made->owned)
        ncclCommAbort(made->communicator);
    made->communicator = NULL;
    nccl_close(made);
}

static dcp_status split(struct nccl_group *group, const dcp_collective *call, int color, int rank,
                        int size, struct nccl_group *made)
{
    bool late = false;
    dcp_status status = split_communicator(group, call, color, rank, made, &late);
    if (late) {
        nccl_give_up(group);
        group->kept = made == NULL; /* otherwise `made` keeps it */
        return status;
    }
    if (status == DCP_OK && made != NULL)
        status = set_up(made, rank, size);
    if (status != DCP_OK && made != NULL)
        discard(made);
    return status;
}

dcp_status nccl_split(void *context, const dcp_collective *call, int color, int rank, int size,
                      void **part)
{
    struct nccl_group *group = context, *made = NULL;
    struct visit visit;
    dcp_status mine = visit_begin(&visit, group->device);
    bool visiting = mine == DCP_OK;
    if (visiting && color >= 0) {
        made = calloc(1, sizeof *made);
        if (made == NULL)
            mine = dcp_error_set(DCP_ERR_NO_MEMORY, "no memory for a group over NCCL");
        else
            made->stream = group->stream;
    }
    dcp_status status = split(group, call, color, rank, size, made);
    if (visiting)
        visit_end(&visit);
    if (status == DCP_OK && made != NULL)
        *part = made;
    return status != DCP_OK ? status : mine;
}

#endif
