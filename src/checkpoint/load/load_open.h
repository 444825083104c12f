/* SPDX-License-Identifier: BSD-3-Clause */
/* The beginning of a load: one rank finds the checkpoint, reads its metadata and shares it with
 * all.
 *
 * If the coordinator's cache has metadata of the same structure from an earlier load, only the
 * changes since are sent. If a rank turns out not to have that metadata, all of it is sent. */
#ifndef CHECKPOINT_LOAD_LOAD_OPEN_H
#define CHECKPOINT_LOAD_LOAD_OPEN_H

#include "dcp/load_planner.h"

/* Collective; every rank passes its status. Also chooses the storage. After success,
 * planning.stored.by_changes is the same on all ranks. */
dcp_status load_open(dcp_loading *loading, dcp_status status);
/* After changes were sent: sends all metadata, for the ranks that lack the rest. Collective. */
dcp_status load_open_whole(dcp_loading *loading);

#endif
