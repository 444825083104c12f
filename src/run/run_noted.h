/* SPDX-License-Identifier: BSD-3-Clause */
/* What notes in a run say of its checkpoints: pinned, copied; and which is the best. */
#ifndef RUN_RUN_NOTED_H
#define RUN_RUN_NOTED_H

#include "run/run_list.h"

/* When the list is checked. */
dcp_status run_noted_read(dcp_run_list *list, const struct run_place *place,
                          const dcp_run_list_options *options);

#endif
