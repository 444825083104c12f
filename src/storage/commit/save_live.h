/* SPDX-License-Identifier: BSD-3-Clause */
/* The saves of this process that own a directory. A mark of this process that belongs to none of
 * them is a left-over that could not be removed. */
#ifndef STORAGE_COMMIT_SAVE_LIVE_H
#define STORAGE_COMMIT_SAVE_LIVE_H

#include <stdbool.h>

#include "storage/commit/save_id.h"

/* Must not move while it is listed. */
struct save_live {
    char save_id[SAVE_ID_SIZE];
    struct save_live *next;
};

void save_live_add(struct save_live *live);
void save_live_remove(struct save_live *live);
bool save_live_has(const char *save_id);

#endif
