/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks of a job that has NCCL and nothing else, and what they do in tests. */
#ifndef NCCL_PLAYERS_H
#define NCCL_PLAYERS_H

#include <pthread.h>

#include "dcp/nccl.h"
#include "nccl/stand_in_nccl.h"

/* A rank is a thread with a device, a stream and a communicator. */
struct player {
    int rank, size;
    int device; /* the number that the rank has in the whole job */
    ncclComm_t communicator;
    cudaStream_t stream;
    dcp_group *group; /* made for it, unless the test makes its own */
    const char *path;
    void (*body)(struct player *player);
    dcp_status status;
    char message[1024];
    pthread_t thread;
};

/* For CMocka; *state is a directory. No communicator of ours may be left at the end, and none of
 * the caller's may have been aborted. */
int players_setup(void **state);
int players_teardown(void **state);

void job_begin(struct player players[STAND_IN_RANKS_MAX], int size, const char *path);
/* Runs body on the first count ranks. */
void job_play(struct player *players, int count, void (*body)(struct player *));
void job_end(struct player *players);

/* Bodies: messages of all sizes, by collectives and from everyone to everyone; saving and loading a
 * matrix, each its own rows and all of it read together; one collective with a short deadline. */
void exchange(struct player *player);
void exchange_all(struct player *player);
void save_and_load(struct player *player);
void load_for_each_other(struct player *player);
void gather_soon(struct player *player);

#endif
