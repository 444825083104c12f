/* SPDX-License-Identifier: BSD-3-Clause */
/* Which ranks of a group are together on one host. Every rank has the same. Pure. */
#ifndef GROUP_HOST_RANKS_H
#define GROUP_HOST_RANKS_H

#include <stddef.h>
#include <stdint.h>

#include "dcp/status.h"

/* Where the ranks of a host are in their order. */
struct host_place {
    uint32_t first;
    uint32_t count;
};

struct host_ranks {
    size_t count;              /* ranks */
    int *order;                /* ranks, those of a host one after the other and ascending */
    struct host_place *places; /* by rank, of its host */
};

/* Each rank alone. Free in either case. */
dcp_status host_ranks_new(size_t count, struct host_ranks *hosts);
void host_ranks_free(struct host_ranks *hosts);
/* Bytes that it takes. */
uint64_t host_ranks_needs(size_t count);

/* Puts ranks together whose numbers are equal; 0: the rank stays alone. numbers: by rank, stored as
 * by store_u64(), so many bytes apart. */
void host_ranks_join(struct host_ranks *hosts, const unsigned char *numbers, size_t apart);
/* Leaves those alone that are with one which is not able, and that one. able: by rank. */
void host_ranks_part(struct host_ranks *hosts, const unsigned char *able);
/* Leaves every rank alone. */
void host_ranks_part_all(struct host_ranks *hosts);

/* The ranks that are together with a rank, and itself, ascending; none after a failure to make it.
 */
size_t host_ranks_with(const struct host_ranks *hosts, int rank, const int **ranks);
/* How many hosts there are, with those of one rank. */
size_t host_ranks_hosts(const struct host_ranks *hosts);

#endif
