/* SPDX-License-Identifier: BSD-3-Clause */
/* Explains saves that meet in one directory because each process of a job saves by itself. */
#ifndef CHECKPOINT_SAVE_SAVE_ALONE_H
#define CHECKPOINT_SAVE_SAVE_ALONE_H

#include "dcp/status.h"

/* If another save owns the directory, this save's group has one rank, and by the environment this
 * process is one of several of a job, the message says that a group is missing. Returns status. */
dcp_status save_alone_explain(dcp_status status, int group_size);

#endif
