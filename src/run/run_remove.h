/* SPDX-License-Identifier: BSD-3-Clause */
/* Removing a checkpoint of another framework with all that is in it. */
#ifndef RUN_RUN_REMOVE_H
#define RUN_RUN_REMOVE_H

#include "run/run_list.h"

/* First what makes a checkpoint of it, durably, then the rest, then its own files beside it. Links
 * are removed, and not followed. */
dcp_status run_remove(const struct run_place *place, const struct run_entry *entry);

/* Whether its files beside it may be another's of the same step as well. */
bool run_shares_files(const struct run_layout *layout);

#endif
