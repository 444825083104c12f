/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "group/collective.h"
#include "group/group.h"

/* This rank's part. */
static dcp_status make(dcp_group *group, const dcp_collective *call, dcp_group **copy)
{
    void *context = NULL;
    if (!group->operations.duplicate)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "groups of this kind cannot be duplicated");
    RETURN_IF_ERROR(error_checked(group->operations.duplicate(group->context, call, &context),
                                  "the operation `duplicate`"));
    if (!context)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "the group cannot be duplicated: its ranks "
                                                  "cannot be used by two threads at the same time");
    dcp_status status = dcp_group_new(&group->operations, context, group->rank, group->size, copy);
    if (status != DCP_OK && group->operations.close)
        group->operations.close(context);
    return status;
}

dcp_status dcp_group_duplicate(dcp_group *group, double timeout_seconds, dcp_group **copy)
{
    static const char function[] = "dcp_group_duplicate";
    dcp_collective call;
    dcp_group *made = NULL;
    dcp_status mine =
        collective_for_caller(function, "duplicating the group", timeout_seconds, &call);
    if (copy)
        *copy = NULL;
    else
        mine = dcp_error_set(DCP_ERR_ARGUMENT, "%s: copy is NULL", function);
    if (!group)
        return mine;
    group_enter(group, function);
    RETURN_IF_ERROR(group_agree(group, &call, mine));
    dcp_status status = group_agree(group, &call, make(group, &call, &made));
    if (status == DCP_OK && copy)
        *copy = made;
    else
        dcp_group_free(made);
    return status;
}
