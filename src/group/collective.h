/* SPDX-License-Identifier: BSD-3-Clause */
/* A group's complete collectives: those that its operations lack are built from others. The group
 * remembers its first failure: afterwards ranks may be out of step, so no further collective may be
 * tried. */
#ifndef GROUP_COLLECTIVE_H
#define GROUP_COLLECTIVE_H

#include "base/error.h"
#include "dcp/group.h"

struct dcp_group {
    dcp_group_operations operations;
    void *context;
    int rank;
    int size;
    const char
        *operation; /* static storage; the call that the ranks are in: "dcp_save"; NULL: unknown */
    struct saved_error broken; /* the first failure of a collective; its status is DCP_OK before */
    struct dcp_group *bulk;    /* owned; carries group_multicast(); NULL: this group does */

    /* For the exchanges of group.h. Their tables are allocated with the group, so that no exchange
     * fails half-way for lack of memory. */
    struct saved_error
        agreed;           /* the last failure that all ranks share; its message names the rank */
    unsigned char *table; /* ROUND_BYTES for each rank */
    size_t *sizes;        /* one for each rank */
    size_t *routes;       /* four for each rank: the arguments of all_to_all */
};

/* Checks the timeout that a public function was given, and replaces 0 by the default. */
dcp_status collective_for_caller(const char *function, const char *phase, double timeout_seconds,
                                 dcp_collective *call);

/* DCP_ERR_STATE, with a message, if the group is broken. */
dcp_status collective_check(const dcp_group *group);

/* A call of an operation. `call` names the operation and phase: "dcp_save: gathering save plans".
 */
struct collective_run {
    dcp_collective call;
    char phase[192];
};

void collective_name(const dcp_group *group, const dcp_collective *call,
                     struct collective_run *run);

dcp_status collective_all_gather(dcp_group *group, const dcp_collective *call, const void *send,
                                 size_t bytes, void *receive);
dcp_status collective_broadcast(dcp_group *group, const dcp_collective *call, int root, void *data,
                                size_t bytes);

/* Scratch bytes that a rank needs for the two functions below, besides what it sends and
 * receives. */
size_t collective_gather_scratch(const dcp_group *group, int root, const size_t *sizes);
size_t collective_scatter_scratch(const dcp_group *group, int root, const size_t *sizes);
/* As the operations of the same names, but every rank knows all sizes. */
dcp_status collective_gather(dcp_group *group, const dcp_collective *call, int root,
                             const void *send, const size_t *sizes, void *scratch, void *receive);
dcp_status collective_scatter(dcp_group *group, const dcp_collective *call, int root,
                              const void *send, const size_t *sizes, void *scratch, void *receive);

/* The operation of the same name, which the group must have. */
dcp_status collective_all_to_all(dcp_group *group, const dcp_collective *call, const void *send,
                                 const size_t *send_sizes, const size_t *send_offsets,
                                 void *receive, const size_t *receive_sizes,
                                 const size_t *receive_offsets);

/* group_multicast() over this group itself, even if another group carries its bulk bytes. */
struct group_multicast;
size_t collective_multicast_scratch(const dcp_group *group, size_t largest);
dcp_status collective_multicast(dcp_group *group, const dcp_collective *call,
                                const struct group_multicast *multicast);

#endif
