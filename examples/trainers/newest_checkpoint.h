/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TRAINERS_NEWEST_CHECKPOINT_H
#define TRAINERS_NEWEST_CHECKPOINT_H

#include <stdint.h>

/* The newest step N whose DIRECTORY/step_N is a whole checkpoint, -1 if there is none. */
int64_t newest_checkpoint(const char *directory);

#endif
