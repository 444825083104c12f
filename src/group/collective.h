/* SPDX-License-Identifier: BSD-3-Clause */
/* A group's collectives, whole: with what its operations leave out derived, and with the memory of
 * its first failure, after which ranks may be out of step and nothing may be tried again. */
#ifndef GROUP_COLLECTIVE_H
#define GROUP_COLLECTIVE_H

#include "base/error.h"
#include "dcp/group.h"

struct dcp_group {
    dcp_group_operations operations;
    void *context;
    int rank;
    int size;
    const char *operation; /* static storage; what the ranks are in: "dcp_save"; NULL: unknown */
    struct error_story broken; /* the first failure of a collective; DCP_OK: none yet */
    struct dcp_group *bulk;    /* owned; what group_multicast() goes over, if not this group */

    /* Of group.h's exchanges. Their tables are allocated with the group, so that no exchange fails
     * for want of them half-way. */
    struct error_story agreed; /* the last failure that all ranks share, which names its rank */
    unsigned char *table;      /* ROUND_BYTES for each rank */
    size_t *sizes;             /* one for each rank */
    size_t *routes;            /* four for each rank: what all_to_all is told */
};

/* What the caller of a public function waits for at most, checked; 0 is the default. */
dcp_status collective_for_caller(const char *function, const char *phase, double timeout_seconds,
                                 dcp_collective *call);

/* DCP_ERR_STATE, with its story, if the group is broken. */
dcp_status collective_check(const dcp_group *group);

dcp_status collective_all_gather(dcp_group *group, const dcp_collective *call, const void *send,
                                 size_t bytes, void *receive);
dcp_status collective_broadcast(dcp_group *group, const dcp_collective *call, int root, void *data,
                                size_t bytes);

/* Bytes that a rank needs to take part in the two below, besides what it sends and receives. */
size_t collective_gather_scratch(const dcp_group *group, int root, const size_t *sizes);
size_t collective_scatter_scratch(const dcp_group *group, int root, const size_t *sizes);
/* As the operations of these names, but every rank knows all sizes. */
dcp_status collective_gather(dcp_group *group, const dcp_collective *call, int root,
                             const void *send, const size_t *sizes, void *scratch, void *receive);
dcp_status collective_scatter(dcp_group *group, const dcp_collective *call, int root,
                              const void *send, const size_t *sizes, void *scratch, void *receive);

/* The operation of this name, which the group must have. */
dcp_status collective_all_to_all(dcp_group *group, const dcp_collective *call, const void *send,
                                 const size_t *send_sizes, const size_t *send_offsets,
                                 void *receive, const size_t *receive_sizes,
                                 const size_t *receive_offsets);

/* group_multicast() over this very group, even if another carries its bulk bytes. */
struct group_multicast;
size_t collective_multicast_scratch(const dcp_group *group, size_t largest);
dcp_status collective_multicast(dcp_group *group, const dcp_collective *call,
                                const struct group_multicast *multicast);

#endif
