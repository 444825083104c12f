/* SPDX-License-Identifier: BSD-3-Clause */
/* The beginning of a load: one rank finds the checkpoint and reads its metadata, all have it.
 *
 * Where the coordinator's cache knows metadata of the same structure from a load before, ranks are
 * told only what has changed since. Those that turn out not to know it can then be told all. */
#ifndef CHECKPOINT_LOAD_LOAD_OPEN_H
#define CHECKPOINT_LOAD_LOAD_OPEN_H

#include "dcp/load_planner.h"

/* Collective; every rank brings its status. Chooses the storage, too. After success
 * planning.stored.by_changes is the same on all ranks. */
dcp_status load_open(dcp_loading *loading, dcp_status status);
/* After changes were told: all of it, for the ranks that did not know the rest. Collective. */
dcp_status load_open_whole(dcp_loading *loading);

#endif
