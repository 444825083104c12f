/* SPDX-License-Identifier: BSD-3-Clause */
/* Rounds: in each, every rank says how it stands and hears how all others stand, so that either all
 * go on or all return the same failure. Every exchange begins with one, and all rounds are alike:
 * an all_gather of entries of one size. So ranks that are in different calls meet in a round,
 * whatever the calls are, and find out there. */
#ifndef GROUP_ROUND_H
#define GROUP_ROUND_H

#include "group/collective.h"
#include "group/group.h"

/* Of each rank: an entry, and room for a record. */
enum { ROUND_ENTRY_SIZE = 32, ROUND_BYTES = ROUND_ENTRY_SIZE + GROUP_RECORD_MAX };

/* The calling thread's story, if it is the one of this failure; else what the status says. */
void round_own_story(dcp_status mine, struct error_story *story);

/* What a rank says in a round. */
struct round {
    const struct error_story *mine;
    int root;           /* of the exchange, which must be the same on all ranks */
    uint64_t number;    /* round_number() of this rank */
    const void *record; /* behind the entries in the group's table */
    size_t record_size; /* GROUP_RECORD_MAX at most */
};

/* Brings every rank's status, number and record to every rank: DCP_OK on all of them, or on all of
 * them the failure of the lowest failed rank, or DCP_ERR_GROUP where ranks are in different
 * operations or phases. A rank that cannot be heard any more returns its own failure, if it has
 * one: it knows more about it than about the group's. */
dcp_status round_run(dcp_group *group, const dcp_collective *call, const struct round *round);
/* As round_run() once the sizes are known: status is how this rank prepared for the bytes. */
dcp_status round_ready(dcp_group *group, const dcp_collective *call, dcp_status status);

/* The number that a rank gave in the last round. */
uint64_t round_number(const dcp_group *group, int rank);

#endif
