/* SPDX-License-Identifier: BSD-3-Clause */
/* An allocator that fails once and counts what is held: for loops that fail every allocation of a
 * call in turn. */
#ifndef TESTS_FORMAT_FAILING_ALLOCATOR_H
#define TESTS_FORMAT_FAILING_ALLOCATOR_H

#include <stddef.h>

/* Installs it; allocation number fail_at (from 0) fails. */
void failing_allocator_install(size_t fail_at);
/* Restores the system's allocator and checks that nothing is held that was allocated since.
 * Returns how many allocations were asked for. */
size_t failing_allocator_remove(void);

#endif
