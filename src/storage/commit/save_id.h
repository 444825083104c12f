/* SPDX-License-Identifier: BSD-3-Clause */
/* The id of a save, which tells whether its files have footers: a file without one is not such a
 * save's, or was damaged. PyTorch's ids are random UUIDs of version 4; ours are of version 8, with
 * a mark behind the version. */
#ifndef STORAGE_COMMIT_SAVE_ID_H
#define STORAGE_COMMIT_SAVE_ID_H

#include <stdbool.h>

#include "dcp/status.h"

enum { SAVE_ID_LENGTH = 36, SAVE_ID_SIZE = 40 };

/* A new one, of a save whose files all have footers. */
dcp_status save_id_make(char id[SAVE_ID_SIZE]);
/* Makes it one that promises nothing. */
void save_id_unmark(char *id);
bool save_id_promises_footers(const char *id);

#endif
