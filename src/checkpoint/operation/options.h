/* SPDX-License-Identifier: BSD-3-Clause */
/* Option structs of the public calls: taken by size, checked, with defaults filled in. */
#ifndef CHECKPOINT_OPERATION_OPTIONS_H
#define CHECKPOINT_OPERATION_OPTIONS_H

#include "base/buffer.h"
#include "dcp/load.h"
#include "dcp/save.h"

#define OPTIONS_DEFAULT_TIMEOUT_SECONDS  1800.0
#define OPTIONS_DEFAULT_TAKEOVER_SECONDS 1800.0

/* On failure group, coordinator and timeout_seconds can be used all the same, so that a rank with
 * wrong arguments can tell the others. */
/* With without_collectives: the rank is noted, and the group left. */
void options_leave_group(dcp_save_options *options);
dcp_status options_check_save(const dcp_save_options *given, dcp_save_options *options);
dcp_status options_check_load(const dcp_load_options *given, dcp_load_options *options);
dcp_status options_check_verification(dcp_verification verification);

/* What all ranks must pass alike: the coordinator's message of it, and comparing one's own. A
 * difference is DCP_ERR_ARGUMENT, which names the option. Options must have been checked. */
dcp_status options_append_load(const dcp_load_options *options, struct buffer *message);
dcp_status options_compare_load(const dcp_load_options *options, struct reader *message);
/* Fills in the default for 0. */
dcp_status options_check_takeover(double *seconds);

#endif
