/* SPDX-License-Identifier: BSD-3-Clause */
/* What every rank sends in a round of an exchange, and where that goes. All ranks can compute all
 * of it, so only data is sent. */
#ifndef CHECKPOINT_SHARE_SHARE_ROUND_H
#define CHECKPOINT_SHARE_SHARE_ROUND_H

#include "checkpoint/share/load_exchange.h"
#include "checkpoint/share/share_routes.h"

/* A window that a rank sends. */
struct share_passage {
    struct share_cursor start;
    struct share_cursor next;
    const struct share_run *run; /* the first one of the window */
    uint32_t set;
    unsigned char *place; /* where this rank has all of it; NULL: it is copied from a window */
};

struct share_round {
    const struct load_exchange *exchange;
    const struct share_destinations *put;
    struct share_routes routes;
    struct share_passage *passages; /* by rank, as the two that follow */
    size_t *sizes;                  /* of the windows; 0: the rank has no data left */
    unsigned char **places;         /* where messages go */
};

/* Messages begin at multiples of so many bytes. */
#define SHARE_MESSAGE_ALIGNMENT 16

uint64_t share_round_memory(uint32_t rank_count);
/* put: borrowed. Close it in either case. */
dcp_status share_round_open(const struct load_exchange *exchange,
                            const struct share_destinations *put, struct share_round *round);
void share_round_close(struct share_round *round);

/* Finds the next round; false: no rank has data left. received: memory for messages that do not go
 * straight to their place. */
bool share_round_next(struct share_round *round, unsigned char *received);

#endif
