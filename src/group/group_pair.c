/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "group/collective.h"
#include "group/group.h"

static dcp_status check(const dcp_group *group, const dcp_group *bulk)
{
    if (!bulk || bulk == group)
        return dcp_error_set(DCP_ERR_ARGUMENT, "dcp_group_pair: bulk is %s",
                             bulk ? "the group itself" : "NULL");
    if (bulk->rank != group->rank || bulk->size != group->size)
        return dcp_error_set(
            DCP_ERR_ARGUMENT,
            "dcp_group_pair: this process is rank %d of %d in the group, but rank %d of %d in bulk",
            group->rank, group->size, bulk->rank, bulk->size);
    if (group->bulk || bulk->bulk)
        return dcp_error_set(DCP_ERR_STATE, "dcp_group_pair: the group is paired already");
    return DCP_OK;
}

dcp_status dcp_group_pair(dcp_group *group, dcp_group *bulk, double timeout_seconds)
{
    dcp_collective call;
    dcp_status mine =
        collective_for_caller("dcp_group_pair", "pairing groups", timeout_seconds, &call);
    if (!group)
        return dcp_error_set(DCP_ERR_ARGUMENT, "dcp_group_pair: group is NULL");
    if (mine == DCP_OK)
        mine = check(group, bulk);
    group_enter(group, "dcp_group_pair");
    if (mine == DCP_OK)
        group_enter(bulk, "dcp_group_pair");
    RETURN_IF_ERROR(group_agree(group, &call, mine));
    /* Try both groups once now, rather than find out in the middle of a load that one of them
     * fails. */
    mine = group_agree(bulk, &call, DCP_OK);
    group->agreed = bulk->agreed;
    RETURN_IF_ERROR(group_agree(group, &call, mine));
    group->bulk = bulk;
    return DCP_OK;
}
