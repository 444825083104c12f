/* SPDX-License-Identifier: BSD-3-Clause */
/* Rounds: in each, every rank shares its status with all others, so that either all go on or all
 * return the same failure. Every exchange begins with a round, and all rounds are an all_gather of
 * entries of the same size. So ranks in different calls meet in a round, whatever the calls are,
 * and detect it there. */
#ifndef GROUP_ROUND_H
#define GROUP_ROUND_H

#include "group/collective.h"
#include "group/group.h"

/* For each rank: an entry, and room for a record. */
enum { ROUND_ENTRY_SIZE = 32, ROUND_BYTES = ROUND_ENTRY_SIZE + GROUP_RECORD_MAX };

/* The calling thread's message if it belongs to this failure, otherwise the status's text. */
void round_own_error(dcp_status mine, struct saved_error *error);

/* What a rank shares in a round. */
struct round {
    const struct saved_error *mine;
    int root;           /* of the exchange; must be the same on all ranks */
    uint64_t number;    /* what round_number() returns for this rank */
    const void *record; /* stored behind the entries in the group's table */
    size_t record_size; /* GROUP_RECORD_MAX at most */
};

/* Shares every rank's status, number and record with every rank. Returns the same on all of them:
 * DCP_OK, the failure of the lowest failed rank, or DCP_ERR_GROUP if ranks are in different
 * operations or phases. If the group itself fails, a rank that had failed before returns its own
 * failure. */
dcp_status round_run(dcp_group *group, const dcp_collective *call, const struct round *round);
/* As round_run(), once the sizes are known. status: whether this rank could prepare for the
 * bytes. */
dcp_status round_ready(dcp_group *group, const dcp_collective *call, dcp_status status);

/* The number that a rank shared in the last round. */
uint64_t round_number(const dcp_group *group, int rank);

#endif
