/* SPDX-License-Identifier: BSD-3-Clause */
/* Saves that meet in one directory because each process of a job saves alone. */
#ifndef CHECKPOINT_SAVE_SAVE_ALONE_H
#define CHECKPOINT_SAVE_SAVE_ALONE_H

#include "dcp/status.h"

/* If another save was in the way of one whose group has one rank, and the environment says that
 * this process is one of several of a job, the message says that a group is missing. Returns
 * status. */
dcp_status save_alone_explain(dcp_status status, int group_size);

#endif
