/* SPDX-License-Identifier: BSD-3-Clause */
/* All allocations of the library, through the replaceable allocator. Sizes are checked for
 * overflow. A size of 0 gives a unique block. NULL means out of memory; callers report it with
 * error_no_memory(). */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* The alignment of direct I/O: of address, size and offset. */
#define MEMORY_PAGE ((size_t)4096)

void *memory_allocate(size_t size);
void *memory_allocate_zeroed(size_t count, size_t size);
void *memory_allocate_array(size_t count, size_t size);
void *memory_reallocate_array(void *block, size_t count, size_t size);
/* Aligned to a power of two; release with memory_release_aligned(). */
void *memory_allocate_aligned(size_t alignment, size_t size);
void memory_release_aligned(void *block);
/* For device transfers and large copies. From 2 MiB on, blocks are aligned to 2 MiB and in large
 * pages, if the system grants them; smaller ones are aligned to 4 KiB. Release with
 * memory_release_aligned(). */
void *memory_allocate_large(size_t size);
/* The most memory that a block of memory_allocate_large() takes. */
uint64_t memory_large_size(uint64_t size);
/* For memory that is handed to the caller: charged to no account. */
void *memory_allocate_unpaid(size_t size);
/* A block that is charged as if it had `beside` bytes more: for memory that another library
 * allocates by itself while the block exists. */
void *memory_allocate_beside(size_t size, size_t beside);
void memory_release(void *block);
char *memory_copy_text(const char *text);

#endif
