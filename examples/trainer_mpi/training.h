/* SPDX-License-Identifier: BSD-3-Clause */
/* One training run: model, optimizer, schedule, data, and how they become a checkpoint. */
#ifndef TRAINER_TRAINING_H
#define TRAINER_TRAINING_H

#include <mpi.h>

#include "model.h"

/* Linear warm-up, then cosine decay. */
struct schedule {
    int64_t step;
    double base_rate;
    double rate;
};

struct training {
    MPI_Comm communicator;
    dcp_group *group;
    struct model model;
    struct schedule schedule;
    struct spirals data;
    int64_t step;

    dcp_save_chain *saves;
    dcp_future *saving; /* the save that is under way; NULL: none */
    int64_t saving_step;
};

/* One step of Adam over all ranks. Returns the mean loss of the batch. */
double training_step(struct training *training);

/* Makes what saves need. Collective, as are those that follow. */
dcp_status training_prepare_saves(struct training *training);
/* Begins to save as DIRECTORY/step_N; steps go on meanwhile. */
dcp_status training_save(struct training *training, const char *directory);
/* Asks, or waits, for the end of the save that is under way, if any. Step: what is safe now, -1:
 * nothing new. */
dcp_status training_follow_save(struct training *training, bool wait, int64_t *step);
/* Loads DIRECTORY/step_STEP, whatever number of ranks wrote it. */
dcp_status training_load(struct training *training, const char *directory, int64_t step);

#endif
