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
};

/* One step of Adam over all ranks. Returns the mean loss of the batch. */
double training_step(struct training *training);

/* Saves as DIRECTORY/step_N. Collective. */
dcp_status training_save(struct training *training, const char *directory);
/* Loads DIRECTORY/step_STEP, whatever number of ranks wrote it. Collective. */
dcp_status training_load(struct training *training, const char *directory, int64_t step);
/* The newest step in DIRECTORY whose checkpoint is whole, -1 if there is none. */
int64_t newest_checkpoint(const char *directory);

#endif
