/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdint.h>

#include "group/collective.h"
#include "group/group.h"

/* Where the first of the messages that this rank receives goes; NULL: it receives none. */
static unsigned char *lowest_place(const struct dcp_group *group,
                                   const struct group_multicast *multicast)
{
    unsigned char *lowest = NULL;
    for (int rank = 0; rank < group->size; rank++) {
        bool received = rank != group->rank && multicast->from[rank] && multicast->sizes[rank] != 0;
        if (received && (!lowest || (uintptr_t)multicast->places[rank] < (uintptr_t)lowest))
            lowest = multicast->places[rank];
    }
    return lowest;
}

/* This rank's part of one all_to_all. */
static dcp_status exchange_directly(dcp_group *group, const dcp_collective *call,
                                    const struct group_multicast *multicast)
{
    size_t size = (size_t)group->size, own = (size_t)group->rank;
    size_t *send_sizes = group->routes, *send_offsets = send_sizes + size;
    size_t *receive_sizes = send_offsets + size, *receive_offsets = receive_sizes + size;
    unsigned char *received = lowest_place(group, multicast);
    for (size_t rank = 0; rank < size; rank++) {
        send_sizes[rank] = rank != own && multicast->to[rank] ? multicast->sizes[own] : 0;
        send_offsets[rank] = 0;
        receive_sizes[rank] = rank != own && multicast->from[rank] ? multicast->sizes[rank] : 0;
        receive_offsets[rank] =
            receive_sizes[rank] != 0 ? (uintptr_t)multicast->places[rank] - (uintptr_t)received : 0;
    }
    return collective_all_to_all(group, call, multicast->send, send_sizes, send_offsets, received,
                                 receive_sizes, receive_offsets);
}

/* Every rank that has bytes broadcasts them; ranks that do not want them discard them. */
static dcp_status exchange_by_broadcasts(dcp_group *group, const dcp_collective *call,
                                         const struct group_multicast *multicast)
{
    for (int rank = 0; rank < group->size; rank++) {
        void *data = multicast->scratch;
        if (multicast->sizes[rank] == 0)
            continue;
        if (rank == group->rank)
            data = (void *)multicast->send; /* a broadcast only reads its root's memory */
        else if (multicast->from[rank])
            data = multicast->places[rank];
        RETURN_IF_ERROR(collective_broadcast(group, call, rank, data, multicast->sizes[rank]));
    }
    return DCP_OK;
}

size_t collective_multicast_scratch(const dcp_group *group, size_t largest)
{
    return group->operations.all_to_all == NULL ? largest : 0;
}

dcp_status collective_multicast(dcp_group *group, const dcp_collective *call,
                                const struct group_multicast *multicast)
{
    if (group->operations.all_to_all == NULL)
        return exchange_by_broadcasts(group, call, multicast);
    return exchange_directly(group, call, multicast);
}

static const dcp_group *carrier_of(const dcp_group *group)
{
    return group->bulk ? group->bulk : group;
}

bool group_multicast_is_direct(const dcp_group *group)
{
    return carrier_of(group)->operations.all_to_all != NULL;
}

size_t group_multicast_scratch(const dcp_group *group, size_t largest)
{
    if (dcp_group_size(group) == 1)
        return 0;
    return collective_multicast_scratch(carrier_of(group), largest);
}

dcp_status group_multicast(dcp_group *group, const struct dcp_collective *call,
                           const struct group_multicast *multicast)
{
    if (dcp_group_size(group) == 1)
        return DCP_OK;
    if (group->bulk == NULL)
        return collective_multicast(group, call, multicast);
    RETURN_IF_ERROR(collective_check(group));
    return collective_multicast(group->bulk, call, multicast);
}
