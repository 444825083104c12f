/* SPDX-License-Identifier: BSD-3-Clause */
/* What a point of `growth` takes, and the state that ranks save and load there. */
#ifndef BENCH_GROWTH_POINT_H
#define BENCH_GROWTH_POINT_H

#include <dcp.h>

/* Seconds that the process computed, as it and as the kernel for it, and that went by; bytes in
 * use.
 */
struct growth_point {
    double user, kernel, wall;
    double memory;
};

/* Ends the program with the message of a failure. */
void growth_check(dcp_status status);
/* Now, from where memory counts anew. */
struct growth_point growth_start(void);
struct growth_point growth_since(const struct growth_point *start);
/* A line of each figure: its name, value and unit. ranks: by how many it is divided; 0: there is
 * one, which has the time to itself, so that what went by tells something. */
void growth_report(const char *what, const struct growth_point *taken, int ranks);

enum { GROWTH_COLUMNS = 4 };
/* So many tensors, of each of which every rank has a row, at data. mesh: they say so. */
dcp_state *growth_rank_state(int ranks, int rank, long tensors, bool mesh, float *data);

#endif
