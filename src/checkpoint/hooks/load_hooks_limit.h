/* SPDX-License-Identifier: BSD-3-Clause */
/* Keeps a load with hooks within a memory limit. */
#ifndef CHECKPOINT_HOOKS_LOAD_HOOKS_LIMIT_H
#define CHECKPOINT_HOOKS_LOAD_HOOKS_LIMIT_H

#include "checkpoint/load/loading.h"

/* Finds the smallest limit for reading the final plan. Reads its objects, and drops them: how far
 * they decompress, and what decoding takes, can only be found out by doing it. */
dcp_status load_hooks_find_limit(dcp_loading *loading);

#endif
