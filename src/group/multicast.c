/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdint.h>

#include "group/collective.h"
#include "group/group.h"

/* The arguments of an all_to_all: of each rank what goes there, and what comes from there. */
struct routes {
    size_t *send_sizes;
    size_t *send_offsets;
    size_t *receive_sizes;
    size_t *receive_offsets;
    uintptr_t sent; /* from here on; 0: nothing */
    uintptr_t received;
};

/* What is exchanged with one rank. */
struct route {
    const void *send;
    size_t send_size;
    void *receive;
    size_t receive_size;
};

static struct route find_route(const dcp_group *group, const struct group_multicast *multicast,
                               int rank)
{
    struct route route = {NULL, 0, NULL, 0};
    if (rank == group->rank)
        return route;
    if (multicast->noted && multicast->noted[rank])
        return (struct route){&multicast->note, sizeof multicast->note, &multicast->notes[rank],
                              sizeof multicast->note};
    if (multicast->to[rank] && multicast->sizes[group->rank] != 0) {
        route.send = multicast->send;
        route.send_size = multicast->sizes[group->rank];
    }
    if (multicast->from[rank] && multicast->sizes[rank] != 0) {
        route.receive = multicast->places[rank];
        route.receive_size = multicast->sizes[rank];
    }
    return route;
}

static void lower(uintptr_t *lowest, const void *place, size_t size)
{
    if (size != 0 && (*lowest == 0 || (uintptr_t)place < *lowest))
        *lowest = (uintptr_t)place;
}

/* Offsets are from the lowest address that is sent or received. */
static struct routes find_routes(const dcp_group *group, const struct group_multicast *multicast)
{
    size_t size = (size_t)group->size;
    struct routes routes = {group->routes,
                            group->routes + size,
                            group->routes + 2 * size,
                            group->routes + 3 * size,
                            0,
                            0};
    for (int rank = 0; rank < group->size; rank++) {
        struct route route = find_route(group, multicast, rank);
        lower(&routes.sent, route.send, route.send_size);
        lower(&routes.received, route.receive, route.receive_size);
    }
    for (int rank = 0; rank < group->size; rank++) {
        struct route route = find_route(group, multicast, rank);
        routes.send_sizes[rank] = route.send_size;
        routes.receive_sizes[rank] = route.receive_size;
        routes.send_offsets[rank] = route.send_size != 0 ? (uintptr_t)route.send - routes.sent : 0;
        routes.receive_offsets[rank] =
            route.receive_size != 0 ? (uintptr_t)route.receive - routes.received : 0;
    }
    return routes;
}

/* This rank's part of one all_to_all. */
static dcp_status exchange_directly(dcp_group *group, const dcp_collective *call,
                                    const struct group_multicast *multicast)
{
    struct routes routes = find_routes(group, multicast);
    return collective_all_to_all(group, call, (const void *)routes.sent, routes.send_sizes,
                                 routes.send_offsets, (void *)routes.received, routes.receive_sizes,
                                 routes.receive_offsets);
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
    if (group->operations.all_to_all == NULL && multicast->noted)
        return collective_all_gather(group, call, &multicast->note, sizeof multicast->note,
                                     multicast->notes);
    if (group->operations.all_to_all == NULL)
        return exchange_by_broadcasts(group, call, multicast);
    return exchange_directly(group, call, multicast);
}

size_t group_multicast_scratch(const dcp_group *group, size_t largest)
{
    if (dcp_group_size(group) == 1)
        return 0;
    return collective_multicast_scratch(group->bulk != NULL ? group->bulk : group, largest);
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
