/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/arena.h"

#include <stdint.h>
#include <string.h>

#include "base/memory.h"

enum {
    BLOCK_SIZE_FIRST = 960,         /* small enough for malloc to keep for the next arena */
    BLOCK_SIZE_LARGE = 1024 * 1024, /* blocks double up to this size */
    BLOCK_SIZE_MAX = 32 * 1024 * 1024
};

struct arena_block {
    struct arena_block *next;
    size_t size; /* of data */
    _Alignas(max_align_t) unsigned char data[];
};

void arena_init(struct arena *arena, size_t limit)
{
    *arena = (struct arena){.limit = limit};
}

void arena_free(struct arena *arena)
{
    struct arena_block *block = arena->blocks;
    while (block != NULL) {
        struct arena_block *next = block->next;
        memory_release(block);
        block = next;
    }
    bool unpaid = arena->unpaid;
    arena_init(arena, arena->limit);
    arena->unpaid = unpaid;
}

static struct arena_block *block_new(struct arena *arena, size_t data_size)
{
    size_t size;
    if (__builtin_add_overflow(data_size, sizeof(struct arena_block), &size))
        return NULL;
    if (arena->limit != 0 && size > arena->limit - arena->total)
        return NULL;
    struct arena_block *block =
        arena->unpaid ? memory_allocate_unpaid(size) : memory_allocate(size);
    if (block == NULL)
        return NULL;
    block->size = data_size;
    arena->total += size;
    return block;
}

/* Gives the bytes a block of their own, behind the newest block, which stays in use. */
static void *allocate_large(struct arena *arena, size_t size)
{
    struct arena_block *block = block_new(arena, size);
    if (block == NULL)
        return NULL;
    if (arena->blocks == NULL) {
        block->next = NULL;
        arena->blocks = block;
        arena->used = size;
    } else {
        block->next = arena->blocks->next;
        arena->blocks->next = block;
    }
    return block->data;
}

/* Blocks double, so that small arenas stay small and large ones need few blocks. A large arena
 * leaves at most an eighth of its memory unused. */
static size_t next_block_size(const struct arena *arena, size_t size)
{
    size_t next = arena->blocks != NULL ? arena->blocks->size * 2 : BLOCK_SIZE_FIRST;
    if (next > BLOCK_SIZE_LARGE)
        next = arena->total / 8 > BLOCK_SIZE_LARGE ? arena->total / 8 : BLOCK_SIZE_LARGE;
    if (next > BLOCK_SIZE_MAX)
        next = BLOCK_SIZE_MAX;
    if (arena->limit != 0 && next > (arena->limit - arena->total) / 2)
        next = size;
    return next < size ? size : next;
}

void *arena_allocate(struct arena *arena, size_t size)
{
    if (size > SIZE_MAX - 8)
        return NULL;
    size = size == 0 ? 8 : (size + 7) & ~(size_t)7;
    if (arena->blocks == NULL || size > arena->blocks->size - arena->used) {
        if (size > BLOCK_SIZE_LARGE / 4)
            return allocate_large(arena, size);
        struct arena_block *block = block_new(arena, next_block_size(arena, size));
        if (block == NULL)
            return NULL;
        block->next = arena->blocks;
        arena->blocks = block;
        arena->used = 0;
    }
    void *result = arena->blocks->data + arena->used;
    arena->used += size;
    return result;
}

void *arena_allocate_array(struct arena *arena, size_t count, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total))
        return NULL;
    return arena_allocate(arena, total);
}

char *arena_copy_text(struct arena *arena, const char *text, size_t length)
{
    if (length == SIZE_MAX)
        return NULL;
    char *copy = arena_allocate(arena, length + 1);
    if (copy == NULL)
        return NULL;
    if (length != 0)
        memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

void *arena_copy(struct arena *arena, const void *bytes, size_t size)
{
    void *copy = arena_allocate(arena, size);
    if (copy != NULL && size != 0)
        memcpy(copy, bytes, size);
    return copy;
}
