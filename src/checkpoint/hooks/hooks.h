/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables of hooks: copies them from the caller, and checks what hooks return. */
#ifndef CHECKPOINT_HOOKS_HOOKS_H
#define CHECKPOINT_HOOKS_HOOKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dcp/status.h"

/* Which hooks a save or a load calls; all zero: none. */
struct hooks_kind {
    uint64_t storage; /* of hooks_choose() */
    uint64_t present; /* a bit for each */
};

/* Copies a caller's table, which begins with its size, as sized_read() does. NULL gives a table
 * without hooks. what: the struct, for the message. */
dcp_status hooks_take(void *ours, size_t our_size, const void *theirs, const char *what);
/* Which hooks a table of ours has: bit n for the n-th function pointer, all of which lie from
 * `first` on. */
uint64_t hooks_mask(const void *table, size_t first, size_t size);
/* Checks what a hook returned, which may be any value. Call error_clear() before the hook. */
dcp_status hook_status(dcp_status returned, const char *hook);

#endif
