/* SPDX-License-Identifier: BSD-3-Clause */
#include "group/group.h"

#include "base/memory.h"
#include "base/sized.h"
#include "group/round.h"

static dcp_status check_operations(const dcp_group_operations *operations)
{
    if (operations->all_gather == NULL || operations->broadcast == NULL)
        return dcp_error_set(DCP_ERR_ARGUMENT, "a group needs all_gather and broadcast");
    return DCP_OK;
}

dcp_status dcp_group_new(const dcp_group_operations *operations, void *context, int rank, int size,
                         dcp_group **group)
{
    if (group == NULL)
        return dcp_error_set(DCP_ERR_ARGUMENT, "dcp_group_new: group is NULL");
    *group = NULL;
    if (operations == NULL)
        return dcp_error_set(DCP_ERR_ARGUMENT, "dcp_group_new: operations is NULL");
    if (size < 1 || rank < 0 || rank >= size)
        return dcp_error_set(DCP_ERR_ARGUMENT, "rank %d does not exist in a group of %d", rank,
                             size);
    dcp_group_operations known;
    RETURN_IF_ERROR(
        sized_read(&known, sizeof known, operations, operations->size_of, "dcp_group_operations"));
    RETURN_IF_ERROR(check_operations(&known));
    struct dcp_group *made = memory_allocate_zeroed(1, sizeof *made);
    if (made == NULL)
        return error_no_memory(sizeof *made, "a group");
    made->table = memory_allocate_array((size_t)size, ROUND_BYTES);
    made->sizes = memory_allocate_array((size_t)size, sizeof *made->sizes);
    made->routes = memory_allocate_array((size_t)size, 4 * sizeof *made->routes);
    if (made->table == NULL || made->sizes == NULL || made->routes == NULL) {
        dcp_group_free(made);
        return error_no_memory((size_t)size * (ROUND_BYTES + 5 * sizeof *made->sizes),
                               "a group's tables");
    }
    made->operations = known;
    made->context = context;
    made->rank = rank;
    made->size = size;
    *group = made;
    return DCP_OK;
}

void dcp_group_free(dcp_group *group)
{
    if (group == NULL)
        return;
    if (group->operations.close != NULL)
        group->operations.close(group->context);
    dcp_group_free(group->bulk); /* which has none of its own */
    memory_release(group->table);
    memory_release(group->sizes);
    memory_release(group->routes);
    memory_release(group);
}

void group_enter(dcp_group *group, const char *operation)
{
    if (group == NULL)
        return;
    group->operation = operation;
    if (group->bulk != NULL)
        group->bulk->operation = operation;
}

int dcp_group_rank(const dcp_group *group)
{
    return group != NULL ? group->rank : 0;
}

int dcp_group_size(const dcp_group *group)
{
    return group != NULL ? group->size : 1;
}

void group_messages_free(struct group_messages *messages)
{
    memory_release(messages->bytes);
    memory_release(messages->offsets);
    *messages = (struct group_messages){0};
}
