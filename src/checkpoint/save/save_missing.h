/* SPDX-License-Identifier: BSD-3-Clause */
/* What a partial save knows to be missing. */
#ifndef CHECKPOINT_SAVE_SAVE_MISSING_H
#define CHECKPOINT_SAVE_SAVE_MISSING_H

#include "checkpoint/save/saving.h"

/* At the coordinator, before it writes: counts it in the figures, and logs the first of it. */
void save_missing_report(struct dcp_saving *saving);

#endif
