/* SPDX-License-Identifier: BSD-3-Clause */
/* Public collectives: the exchanges, which compare the ranks' sizes before any bytes move. */
#include <inttypes.h>
#include <string.h>

#include "base/buffer.h"
#include "group/collective.h"
#include "group/group.h"

/* A root and a size, which must be the same on all ranks. */
enum { AT_ROOT = 8, SHAPE_RECORD = 12 };

static dcp_status check_size(const char *function, const void *data, size_t bytes, int ranks)
{
    size_t total;
    if (data == NULL && bytes != 0)
        return dcp_error_set(DCP_ERR_ARGUMENT, "%s: a pointer is NULL, but its size is %zu bytes",
                             function, bytes);
    if (__builtin_mul_overflow(bytes, (size_t)ranks, &total))
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "%s: %zu bytes from each of %d ranks overflow a size", function, bytes,
                             ranks);
    return DCP_OK;
}

/* All ranks see the same records, so they all return the same. */
static dcp_status compare_shapes(const char *function, const unsigned char *records, int ranks)
{
    uint64_t bytes = load_u64(records);
    uint32_t root = load_u32(records + AT_ROOT);
    for (int rank = 1; rank < ranks; rank++) {
        const unsigned char *record = records + (size_t)rank * SHAPE_RECORD;
        if (load_u64(record) != bytes)
            return dcp_error_set(DCP_ERR_ARGUMENT,
                                 "%s: %" PRIu64 " bytes on rank 0 and %" PRIu64
                                 " on rank %d: all ranks must pass the same size",
                                 function, bytes, load_u64(record), rank);
        if (load_u32(record + AT_ROOT) != root)
            return dcp_error_set(DCP_ERR_ARGUMENT,
                                 "%s: root %" PRIu32 " on rank 0 and %" PRIu32
                                 " on rank %d: all ranks must pass the same root",
                                 function, root, load_u32(record + AT_ROOT), rank);
    }
    return DCP_OK;
}

/* Whether all ranks can begin, with the same arguments. */
static dcp_status begin(dcp_group *group, const char *function, const dcp_collective *call,
                        dcp_status mine, int root, size_t bytes)
{
    unsigned char record[SHAPE_RECORD];
    const unsigned char *records;
    store_u64(record, bytes);
    store_u32(record + AT_ROOT, (uint32_t)root);
    group_enter(group, function);
    RETURN_IF_ERROR(group_share(group, call, mine, record, sizeof record, &records));
    return compare_shapes(function, records, dcp_group_size(group));
}

dcp_status dcp_group_all_gather(dcp_group *group, const void *send, size_t bytes,
                                double timeout_seconds, void *receive)
{
    static const char function[] = "dcp_group_all_gather";
    dcp_collective call;
    dcp_status mine = collective_for_caller(function, "gathering bytes", timeout_seconds, &call);
    if (mine == DCP_OK)
        mine = check_size(function, send, bytes, dcp_group_size(group));
    if (mine == DCP_OK)
        mine = check_size(function, receive, bytes, dcp_group_size(group));
    RETURN_IF_ERROR(begin(group, function, &call, mine, 0, bytes));
    if (bytes == 0)
        return DCP_OK;
    if (dcp_group_size(group) > 1)
        return collective_all_gather(group, &call, send, bytes, receive);
    memmove(receive, send, bytes);
    return DCP_OK;
}

dcp_status dcp_group_broadcast(dcp_group *group, int root, size_t bytes, double timeout_seconds,
                               void *data)
{
    static const char function[] = "dcp_group_broadcast";
    dcp_collective call;
    dcp_status mine = collective_for_caller(function, "broadcasting bytes", timeout_seconds, &call);
    if (mine == DCP_OK)
        mine = check_size(function, data, bytes, 1);
    if (mine == DCP_OK && (root < 0 || root >= dcp_group_size(group)))
        mine = dcp_error_set(DCP_ERR_ARGUMENT, "%s: root %d does not exist in a group of %d",
                             function, root, dcp_group_size(group));
    RETURN_IF_ERROR(begin(group, function, &call, mine, root, bytes));
    if (bytes == 0 || dcp_group_size(group) == 1)
        return DCP_OK;
    return collective_broadcast(group, &call, root, data, bytes);
}

dcp_status dcp_group_barrier(dcp_group *group, double timeout_seconds)
{
    static const char function[] = "dcp_group_barrier";
    dcp_collective call;
    dcp_status mine = collective_for_caller(function, "a barrier", timeout_seconds, &call);
    group_enter(group, function);
    return group_agree(group, &call, mine);
}

dcp_status dcp_group_agree(dcp_group *group, dcp_status mine, double timeout_seconds)
{
    static const char function[] = "dcp_group_agree";
    dcp_collective call;
    dcp_status possible =
        collective_for_caller(function, "comparing statuses", timeout_seconds, &call);
    if (possible == DCP_OK && !error_is_status(mine))
        possible =
            dcp_error_set(DCP_ERR_ARGUMENT, "%s: %d is not a dcp_status", function, (int)mine);
    group_enter(group, function);
    return group_agree(group, &call, possible != DCP_OK ? possible : mine);
}
