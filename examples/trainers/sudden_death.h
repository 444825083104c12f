/* SPDX-License-Identifier: BSD-3-Clause */
/* Shows what an interrupted save leaves: processes of this machine die at once, by SIGKILL, while a
 * checkpoint has some of its data but is not committed. */
#ifndef TRAINERS_SUDDEN_DEATH_H
#define TRAINERS_SUDDEN_DEATH_H

#include <stdbool.h>

/* Watches the checkpoint from a thread. False: that could not be started. */
bool sudden_death_arm(const char *checkpoint, const int *processes, int count);

#endif
