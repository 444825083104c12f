/* SPDX-License-Identifier: BSD-3-Clause */
/* A training run on one or several GPUs, a thread for each, as one of them sees it. The first thing
 * that fails ends the program. */
#ifndef TRAINER_CUDA_TRAINING_H
#define TRAINER_CUDA_TRAINING_H

#include <dcp.h>
#include <nccl.h>

#include "network.h"

struct training {
    const char *directory; /* of the run's checkpoints, step_N */
    int gpu, gpus;
    ncclComm_t communicator; /* NULL: there is one GPU */

    struct network network;
    dcp_group *group;
    dcp_state *state; /* what of it is saved and loaded */
    dcp_run *run;
};

/* Begins with the first four members set, where the run was left. All of this is for the GPU's own
 * thread, and collective over all GPUs' threads. */
void training_begin(struct training *training, int64_t save_every);
void training_end(struct training *training);

void training_step(struct training *training);
/* Saves if that is due; steps go on meanwhile. */
void training_after_step(struct training *training);

/* Of all parameters' bits. */
uint64_t training_digest(struct training *training);

void must(bool good, const char *what, const char *why);

#endif
