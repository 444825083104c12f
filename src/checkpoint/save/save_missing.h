/* SPDX-License-Identifier: BSD-3-Clause */
/* Reports what is missing from a partial save. */
#ifndef CHECKPOINT_SAVE_SAVE_MISSING_H
#define CHECKPOINT_SAVE_SAVE_MISSING_H

#include "checkpoint/save/saving.h"

/* At the coordinator, before it writes: counts missing parts in the figures, and logs the first. */
void save_missing_report(struct dcp_saving *saving);

#endif
