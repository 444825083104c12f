/* SPDX-License-Identifier: BSD-3-Clause */
/* The library's allocator with a limit, for inputs that nobody trusts. */
#ifndef FAULT_LIMITED_ALLOCATOR_H
#define FAULT_LIMITED_ALLOCATOR_H

#include <stddef.h>

/* From now on the library may hold so many bytes at a time; more are refused. dcp_set_allocator()
 * ends it. */
void limited_allocator_install(size_t most);
/* Bytes that it holds. */
size_t limited_allocator_held(void);

#endif
