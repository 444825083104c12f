/* SPDX-License-Identifier: BSD-3-Clause */
/* All allocation of the library, through the replaceable allocator. Sizes are checked for overflow.
 * A zero size gives a unique block. NULL means that there is no memory; callers report it with
 * error_no_memory(). */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* What direct transfers to files must be aligned to: address, size and offset. */
#define MEMORY_PAGE ((size_t)4096)

void *memory_allocate(size_t size);
void *memory_allocate_zeroed(size_t count, size_t size);
void *memory_allocate_array(size_t count, size_t size);
void *memory_reallocate_array(void *block, size_t count, size_t size);
/* Aligned to a power of two; release with memory_release_aligned(). */
void *memory_allocate_aligned(size_t alignment, size_t size);
void memory_release_aligned(void *block);
/* For what devices transfer from and to, and large copies: aligned to 2 MiB and in large pages, as
 * far as the system grants them, from that size on; below to 4 KiB. Release with
 * memory_release_aligned(). */
void *memory_allocate_large(size_t size);
/* Memory that a block of memory_allocate_large() takes, at most. */
uint64_t memory_large_size(uint64_t size);
/* Charged to nobody: what becomes the caller's. */
void *memory_allocate_unpaid(size_t size);
/* A block that is charged as if it had so many bytes more: for memory that a library takes by
 * itself meanwhile. */
void *memory_allocate_beside(size_t size, size_t beside);
void memory_release(void *block);
char *memory_copy_text(const char *text);

#endif
