/* SPDX-License-Identifier: BSD-3-Clause */
/* Chooses the table of hooks of a save or load: the one that the caller passes; otherwise the first
 * of several that takes the checkpoint's id; otherwise none (as PyTorch's _storage_setup). */
#ifndef CHECKPOINT_HOOKS_HOOKS_CHOOSE_H
#define CHECKPOINT_HOOKS_HOOKS_CHOOSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dcp/status.h"

struct hooks_choices {
    const void *passed;         /* a table of hooks; NULL: none */
    const void *const *several; /* count tables of the same kind */
    size_t count;
    /* Whether the table says that it takes the id. */
    dcp_status (*takes)(const void *table, const char *id, bool *takes);
};

/* Numbers that stand for a choice, so that ranks can compare it; several[n] is 2 + n. */
enum { HOOKS_NONE = 0, HOOKS_PASSED = 1 };

/* id: "" if there is none. table: NULL for none. */
dcp_status hooks_choose(const struct hooks_choices *choices, const char *id, const void **table,
                        uint64_t *number);

#endif
