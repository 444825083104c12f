/* SPDX-License-Identifier: BSD-3-Clause */
/* Shows what an interrupted save leaves: all ranks of this machine die at once, by SIGKILL, while a
 * checkpoint has some of its data but is not committed. */
#ifndef TRAINER_SUDDEN_DEATH_H
#define TRAINER_SUDDEN_DEATH_H

#include <mpi.h>

/* Watches DIRECTORY/step_STEP from a thread of rank 0. Collective over the ranks of one machine. */
void sudden_death_arm(MPI_Comm communicator, const char *directory, long long step);

#endif
