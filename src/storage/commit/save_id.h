/* SPDX-License-Identifier: BSD-3-Clause */
/* The id of a save, which says whether all its files have footers: if so, a file without one is
 * damaged, or not of this save. PyTorch's ids are random UUIDs of version 4; ours are of version 8,
 * with a mark behind the version. */
#ifndef STORAGE_COMMIT_SAVE_ID_H
#define STORAGE_COMMIT_SAVE_ID_H

#include <stdbool.h>

#include "dcp/status.h"

enum { SAVE_ID_LENGTH = 36, SAVE_ID_SIZE = 40 };

/* Makes a new id, for a save whose files all have footers. */
dcp_status save_id_make(char id[SAVE_ID_SIZE]);
/* Changes it to an id that does not promise footers. */
void save_id_unmark(char *id);
bool save_id_promises_footers(const char *id);

#endif
