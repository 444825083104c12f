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
    dcp_save_chain *saves;
    dcp_future *saving; /* the save that is under way; NULL: none */
    int64_t saving_step;
};

/* Begins with the first four members set. All of this is for the GPU's own thread, and collective
 * over all GPUs' threads. */
void training_begin(struct training *training);
void training_end(struct training *training);

void training_step(struct training *training);
/* Begins to save; steps go on meanwhile. */
void training_save(struct training *training);
/* Asks, or waits, for the end of the save that is under way, if any. */
void training_follow_save(struct training *training, bool wait);
/* Loads what any number of GPUs saved. */
void training_resume(struct training *training, int64_t step);

/* Of all parameters' bits. */
uint64_t training_digest(struct training *training);

void training_path(const struct training *training, int64_t step, char path[4096]);
void must(bool good, const char *what, const char *why);

#endif
