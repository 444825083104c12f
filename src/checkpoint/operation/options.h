/* SPDX-License-Identifier: BSD-3-Clause */
/* Option structs of the public calls: taken by size, checked, with defaults filled in. */
#ifndef CHECKPOINT_OPERATION_OPTIONS_H
#define CHECKPOINT_OPERATION_OPTIONS_H

#include "base/buffer.h"
#include "dcp/load.h"
#include "dcp/save.h"

#define OPTIONS_DEFAULT_TIMEOUT_SECONDS  1800.0
#define OPTIONS_DEFAULT_TAKEOVER_SECONDS 1800.0

/* group, coordinator and timeout_seconds are usable even after a failure, so that a rank with wrong
 * arguments can report that to the others. */
/* With without_collectives: stores the rank and drops the group. */
void options_leave_group(dcp_save_options *options);
dcp_status options_check_save(const dcp_save_options *given, dcp_save_options *options);
dcp_status options_check_load(const dcp_load_options *given, dcp_load_options *options);
dcp_status options_check_verification(dcp_verification verification);

/* Options that must be the same on all ranks: the coordinator appends its own to a message, and
 * other ranks compare theirs. A difference is DCP_ERR_ARGUMENT, which names the option. Options
 * must have been checked. */
dcp_status options_append_load(const dcp_load_options *options, struct buffer *message);
dcp_status options_compare_load(const dcp_load_options *options, struct reader *message);
/* Fills in the default for 0. */
dcp_status options_check_takeover(double *seconds);

#endif
