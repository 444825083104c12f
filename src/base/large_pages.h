/* SPDX-License-Identifier: BSD-3-Clause */
/* Which memory is in large pages, whoever has allocated it: looked up in the process's page tables.
 */
#ifndef BASE_LARGE_PAGES_H
#define BASE_LARGE_PAGES_H

#include <stddef.h>

/* Bytes of a range that are in large pages now; 0 where the system does not say. Takes no memory.
 */
size_t large_pages_count(const void *memory, size_t size);
/* The same as the list of mappings tells it, which says of each mapping only how much of it is: so
 * many are at least. path: of the list. */
size_t large_pages_count_by_mappings(const char *path, const void *memory, size_t size);

#endif
