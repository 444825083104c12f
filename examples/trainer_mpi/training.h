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

    dcp_state *state; /* what of it is saved and loaded */
    dcp_run *run;
};

/* One step of Adam over all ranks. Returns the mean loss of the batch. */
double training_step(struct training *training);

/* The tree that checkpoints are made of; freed by the caller. */
dcp_state *training_state(struct training *training);

#endif
