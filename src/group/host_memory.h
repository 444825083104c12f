/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that the ranks of one host read of each other, whatever connects the group: what one of
 * them has for the others is not copied into messages, and where in it that lies is told there,
 * too.
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

/* Identifies this rank's host, for ranks that read each other's memory there; 0: this rank cannot.
 */
uint64_t host_memory_host(void);

/* Makes `size` bytes of this rank's that the other ranks of its host read, and `between` more in a
 * group that is on several hosts. Collective; each rank brings its status, and the result is the
 * same on all. If the group has no all_to_all, only a group that is on one host as a whole has such
 * memory. Free it in either case. */
dcp_status host_memory_open(dcp_group *group, const struct dcp_collective *call, dcp_status mine,
                            size_t size, size_t between, struct host_memory **memory);
/* NULL is allowed. Others may go on reading what they have open. */
void host_memory_close(struct host_memory *memory);

/* The most that it takes, with `size` bytes in all, in a group of so many ranks. */
uint64_t host_memory_needs(int ranks, size_t size);

/* This rank's bytes; NULL if no other rank reads them. */
unsigned char *host_memory_own(const struct host_memory *memory);
/* Those of `between`, which follow them, a multiple of 16 bytes away; NULL if there are none. */
unsigned char *host_memory_between(const struct host_memory *memory);
/* Whether this rank and another one read each other's memory; false for this rank itself. */
bool host_memory_reaches(const struct host_memory *memory, int rank);
/* `size` bytes of such a rank from an offset on, which it sent; NULL if it has not so many. */
const unsigned char *host_memory_of(const struct host_memory *memory, int rank, uint64_t offset,
                                    size_t size);
/* The ranks that reach each other and a rank, and that rank itself, in ascending order: the same on
 * all ranks. */
size_t host_memory_with(const struct host_memory *memory, int rank, const int **ranks);
/* Whether this rank reaches all others. */
bool host_memory_is_whole(const struct host_memory *memory);

/* Begins a round of an exchange. Returns when the ranks of `with` have begun it, too, and those of
 * the round before: these have read by then what was for them in it. note: for the others; notes:
 * by rank, those of `with`. with: by rank, of those that this rank reaches; the same pairs at both
 * ends. All ranks of the host begin the same rounds; a failure ends it for this rank. */
dcp_status host_memory_meet(struct host_memory *memory, const struct dcp_collective *call,
                            const bool *with, uint64_t note, uint64_t *notes);
/* Tells the others that this rank waits for all in an agreement of the group: one that still waits
 * for it in a round fails, instead of both waiting for each other. */
void host_memory_agree(struct host_memory *memory);

#endif
