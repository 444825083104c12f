/* SPDX-License-Identifier: BSD-3-Clause */
/* A bump allocator: many small blocks that die together. Blocks are aligned to 8 bytes and not
 * zeroed. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *blocks;
    size_t used;  /* of the newest block */
    size_t total; /* bytes taken from the allocator */
    size_t limit; /* most bytes to take; 0: none */
    bool unpaid;  /* blocks are charged to no account */
};

void arena_init(struct arena *arena, size_t limit);
void arena_free(struct arena *arena);
/* NULL: no memory, or the limit is reached. */
void *arena_allocate(struct arena *arena, size_t size);
void *arena_allocate_array(struct arena *arena, size_t count, size_t size);
/* Copies length bytes and adds a NUL. */
char *arena_copy_text(struct arena *arena, const char *text, size_t length);
void *arena_copy(struct arena *arena, const void *bytes, size_t size);

#endif
