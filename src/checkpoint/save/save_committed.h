/* SPDX-License-Identifier: BSD-3-Clause */
/* What the caller gets after a commit: the checkpoint's metadata, and a call. */
#ifndef CHECKPOINT_SAVE_SAVE_COMMITTED_H
#define CHECKPOINT_SAVE_SAVE_COMMITTED_H

#include "dcp/save.h"
#include "dcp/storage_writer.h"

/* Before the commit, so that nothing can fail after it: makes the metadata that the options ask
 * for, at the coordinator. */
dcp_status save_committed_prepare(dcp_saving *saving);
/* Every rank, after the commit: hands the metadata over, and calls the options' function. */
void save_committed_notify(dcp_saving *saving);
/* Frees the metadata of a failed attempt. */
void save_committed_drop(dcp_saving *saving);

#endif
