/* SPDX-License-Identifier: BSD-3-Clause */
/* What the examples of planners share: a job of four ranks, here threads of one process, and the
 * state that each of them has. */
#ifndef FOUR_RANKS_H
#define FOUR_RANKS_H

#include <dcp.h>

#define RANKS   4
#define ROWS    8
#define COLUMNS 3

/* One rank of the job. */
struct trainer {
    dcp_group *group;
    int rank;
    const char *path;
    bool behind;                         /* saves are asynchronous */
    float weight[ROWS / RANKS][COLUMNS]; /* this rank's rows of "model.weight" */
    float bias[COLUMNS];                 /* the same on every rank */
    dcp_state *state;
};

/* What the arguments say is "DIRECTORY [async]". Runs save on every rank, and loads the checkpoint
 * by one process: `prefix` in front of all names. Returns the program's exit status; what goes
 * wrong is printed. */
int run_ranks(int argc, char **argv, dcp_status (*save)(struct trainer *trainer),
              const char *prefix);

/* Saves the trainer's state with a planner or a storage writer: at once, or while training goes on.
 */
dcp_status save_state(struct trainer *trainer, dcp_save_options options);

#endif
