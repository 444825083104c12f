/* SPDX-License-Identifier: BSD-3-Clause */
/* Pruning a run that another framework keeps, when its layout is named. */
#ifndef RUN_RUN_PRUNE_OTHERS_H
#define RUN_RUN_PRUNE_OTHERS_H

#include "dcp/run_prune.h"

/* As dcp_run_prune(), with options->layout. keep: of this version. */
dcp_status run_prune_others(const char *path, const dcp_run_prune_options *options,
                            const dcp_run_keep *keep, uint64_t *removed);

#endif
