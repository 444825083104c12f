/* SPDX-License-Identifier: BSD-3-Clause */
/* A save that finds no space while old checkpoints are being removed waits for their removal. */
#ifndef RUN_RUN_ROOM_H
#define RUN_RUN_ROOM_H

#include "run/run_manager.h"

/* For the chain of a run that keeps some checkpoints: attempts from the same copy. */
void run_room_prepare(dcp_run *run, dcp_save_chain_options *options);
/* A save is about to begin; what is removed from now on is room for another attempt. */
void run_room_begin(dcp_run *run);
/* Whether to try again after that status of all ranks. Collective if it is DCP_ERR_NO_SPACE; keeps
 * the error. */
bool run_room_found(dcp_run *run, dcp_status status);

#endif
