/* SPDX-License-Identifier: BSD-3-Clause */
/* Which storage a save or load is about: the one that the caller passes, or else the first of
 * several that takes the checkpoint's id, or else the file system, which takes all but "scheme://"
 * (PyTorch's _storage_setup). */
#ifndef CHECKPOINT_STORAGE_CHOOSE_H
#define CHECKPOINT_STORAGE_CHOOSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dcp/status.h"

struct storage_choices {
    const void *passed;         /* a table of hooks; NULL: none */
    const void *const *several; /* count tables of the same kind */
    size_t count;
    /* Whether the table says that it takes the id. */
    dcp_status (*takes)(const void *table, const char *id, bool *takes);
};

/* Numbers that stand for a choice, so that ranks can compare it; several[n] is 2 + n. */
enum { STORAGE_FILES = 0, STORAGE_PASSED = 1 };

/* id: "" if there is none. table: NULL for the file system. DCP_ERR_UNSUPPORTED if nothing takes
 * the id, DCP_ERR_ARGUMENT if the file system would have to do without one. */
dcp_status storage_choose(const struct storage_choices *choices, const char *id, const void **table,
                          uint64_t *number);

#endif
