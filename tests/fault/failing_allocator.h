/* SPDX-License-Identifier: BSD-3-Clause */
/* The library's allocator, failing on purpose. The usual loop:
 *
 *     for (long n = 1;; n++) {
 *         failing_allocator_install(n, false);
 *         dcp_status status = what_is_tested();   (frees everything it made)
 *         bool reached = failing_allocator_reached();
 *         assert_int_equal(failing_allocator_remove(), 0);
 *         if (!reached) { assert status is DCP_OK; break; }
 *         assert status is DCP_ERR_NO_MEMORY;
 *     }
 */
#ifndef FAULT_FAILING_ALLOCATOR_H
#define FAULT_FAILING_ALLOCATOR_H

#include <stdbool.h>

/* Fails the n-th allocation from now on (0: none), or that one and all after it. Allocations and
 * reallocations count, on all threads. */
void failing_allocator_install(long n, bool from_then_on);
/* Whether an allocation was refused. */
bool failing_allocator_reached(void);
/* Allocations asked for since install. */
long failing_allocator_count(void);
/* Restores malloc; returns the number of blocks that were allocated since install and not released.
 */
long failing_allocator_remove(void);

#endif
