/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that the ranks of one host read of each other, whatever connects the group: what one of
 * them has for the others is not copied into messages.
 *
 * It needs Linux (memfd_create(), /proc), and ranks of one user, pid namespace and network
 * namespace. Other ranks, and those of a host on which it fails, exchange messages as before. */
#ifndef GROUP_HOST_MEMORY_H
#define GROUP_HOST_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dcp/group.h"

struct host_memory;

/* Makes `size` bytes of this rank's that the other ranks of its host read. Collective; each rank
 * brings its status, and the result is the same on all. If the group has no all_to_all, only a
 * group that is on one host as a whole has such memory. Free it in either case. */
dcp_status host_memory_open(dcp_group *group, const struct dcp_collective *call, dcp_status mine,
                            size_t size, struct host_memory **memory);
/* NULL is allowed. Others may go on reading what they have open. */
void host_memory_close(struct host_memory *memory);

/* The most that it takes, with `size` bytes for others, in a group of so many ranks. */
uint64_t host_memory_needs(int ranks, size_t size);

/* This rank's bytes; NULL if no other rank reads them. */
unsigned char *host_memory_own(const struct host_memory *memory);
/* Whether this rank and another one read each other's memory; false for this rank itself. */
bool host_memory_reaches(const struct host_memory *memory, int rank);
/* `size` bytes of such a rank from an offset on, which it sent; NULL if it has not so many. */
const unsigned char *host_memory_of(const struct host_memory *memory, int rank, uint64_t offset,
                                    size_t size);
/* The ranks that this rank reaches, in ascending order. */
size_t host_memory_peers(const struct host_memory *memory, const int **ranks);

#endif
