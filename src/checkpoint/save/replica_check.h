/* SPDX-License-Identifier: BSD-3-Clause */
/* Compares replicas, before anything is written.
 *
 *   each rank     keys of its chunks and objects (replica_digest.h)  -> coordinator
 *   coordinator   which of them several ranks have, and the sample   -> each rank
 *   each rank     digests of these                                   -> coordinator
 *   coordinator   keys whose digests differ, mostly none             -> all
 *   each rank     of these: name, box, digests of segments           -> coordinator, which makes
 * the message (replica_message.h)
 */
#ifndef CHECKPOINT_SAVE_REPLICA_CHECK_H
#define CHECKPOINT_SAVE_REPLICA_CHECK_H

#include "checkpoint/save/saving.h"

bool replica_check_is_wanted(const dcp_saving *saving);
/* Collective, after the save is assigned, when the rank's items can be read. status: this rank's
 * status so far. Does nothing if not wanted, or done before. */
dcp_status replica_check_run(dcp_saving *saving, dcp_status status);
/* Collective, for a memory limit: takes the memory of the longest lists that the check may have,
 * and digests nothing, so that the save's account knows beforehand what the check takes. The
 * message about a difference is not counted. Does nothing where replica_check_run() does
 * nothing. */
dcp_status replica_check_measure(dcp_saving *saving, dcp_status status);

#endif
