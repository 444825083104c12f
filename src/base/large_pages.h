/* SPDX-License-Identifier: BSD-3-Clause */
/* Which memory is in large pages, no matter who allocated it: looked up in the process's page
 * tables.
 */
#ifndef BASE_LARGE_PAGES_H
#define BASE_LARGE_PAGES_H

#include <stddef.h>

/* Bytes of a range that are in large pages now; 0 where the system does not say. Takes no memory.
 */
size_t large_pages_count(const void *memory, size_t size);
/* The same from the list of mappings, which has only a total for each mapping: a lower bound. path:
 * of the list. */
size_t large_pages_count_by_mappings(const char *path, const void *memory, size_t size);

#endif
