/* SPDX-License-Identifier: BSD-3-Clause */
/* The ways of the windows of a round. Ranks of the reader's host read a window in its memory; to
 * other hosts it is sent once, however many ranks want it there: one of them receives it in memory
 * that the others read. */
#ifndef CHECKPOINT_SHARE_SHARE_ROUTES_H
#define CHECKPOINT_SHARE_SHARE_ROUTES_H

#include "group/host_memory.h"
#include "plan/share/load_share.h"

struct share_routes {
    const struct load_share *share;
    const struct host_memory *memory;
    uint32_t rank; /* this one */

    bool *to;          /* by rank, as all arrays: to which this rank's window is sent */
    bool *from;        /* whose window is sent to this rank */
    bool *shared;      /* and is for other ranks of this host as well */
    uint32_t *holders; /* the rank that has the window of a rank for this one: that rank, if it is
                        * of this host; this one, if it is sent to it; one that it is sent to;
                        * SHARE_NO_RANK: this rank wants none of it */
    bool *meets;       /* of this host: one wants the other's window */
    bool *passes;      /* or has received a window that the other wants */
    uint32_t set;      /* whose ranks are marked in `to`; set_count: none yet */
};

#define SHARE_NO_RANK UINT32_MAX

uint64_t share_routes_memory(uint32_t rank_count);
/* Close it in either case. */
dcp_status share_routes_open(const struct load_share *share, uint32_t rank,
                             struct share_routes *routes);
void share_routes_close(struct share_routes *routes);

/* Begins a round. */
void share_routes_begin(struct share_routes *routes);
/* Adds the window of a rank for the ranks of a set; the ranks in any order. */
void share_routes_add(struct share_routes *routes, uint32_t reader, uint32_t set);

#endif
