/* SPDX-License-Identifier: BSD-3-Clause */
/* What the caller gets of a checkpoint that has been committed: its metadata, and a call. */
#ifndef CHECKPOINT_SAVE_SAVE_COMMITTED_H
#define CHECKPOINT_SAVE_SAVE_COMMITTED_H

#include "dcp/save.h"
#include "dcp/storage_writer.h"

/* Before the commit, so that nothing can fail after it: makes the metadata that the options ask
 * for, at the coordinator. */
dcp_status save_committed_prepare(dcp_saving *saving);
/* Every rank, after the commit: hands the metadata over, and calls the options' function. */
void save_committed_tell(dcp_saving *saving);
/* Of an attempt that has failed. */
void save_committed_drop(dcp_saving *saving);

#endif
