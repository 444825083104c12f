/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/large_pages.h"
#include "base/memory_account.h"
#include "base/stream_copy.h"
#include "dcp/environment.h"

#define PAGE       ((size_t)4 << 10)
#define LARGE_PAGE ((size_t)2 << 20)
/* Bytes in front of an aligned block, including its header. */
#define BLOCK_ROOM ((uint64_t)64)

static void *system_allocate(void *context, size_t size)
{
    (void)context;
    return malloc(size);
}

static void *system_reallocate(void *context, void *block, size_t size)
{
    (void)context;
    return realloc(block, size);
}

static void system_release(void *context, void *block)
{
    (void)context;
    free(block);
}

static const dcp_allocator system_allocator = {system_allocate, system_reallocate, system_release,
                                               NULL};
static dcp_allocator allocator = {system_allocate, system_reallocate, system_release, NULL};

dcp_status dcp_set_allocator(const dcp_allocator *replacement)
{
    if (replacement != NULL && (replacement->allocate == NULL || replacement->reallocate == NULL ||
                                replacement->release == NULL))
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "an allocator needs allocate, reallocate and release");
    allocator = replacement != NULL ? *replacement : system_allocator;
    return DCP_OK;
}

/* In front of each block. */
struct header {
    _Alignas(max_align_t) struct memory_account *account; /* that pays */
    size_t charged;
};

static struct header *header_of(void *block)
{
    return (struct header *)block - 1;
}

static void *allocate(size_t size, size_t beside)
{
    struct memory_account *account = memory_account_current();
    size_t total, charged;
    if (__builtin_add_overflow(size != 0 ? size : 1, sizeof(struct header), &total) ||
        __builtin_add_overflow(total, beside, &charged) || !memory_account_charge(account, charged))
        return NULL;
    struct header *header = allocator.allocate(allocator.context, total);
    if (header == NULL) {
        memory_account_discharge(account, charged);
        return NULL;
    }
    *header = (struct header){.account = account, .charged = charged};
    return header + 1;
}

void *memory_allocate(size_t size)
{
    return allocate(size, 0);
}

void *memory_allocate_unpaid(size_t size)
{
    struct memory_account *before = memory_account_enter(NULL);
    void *block = memory_allocate(size);
    memory_account_enter(before);
    return block;
}

void *memory_allocate_beside(size_t size, size_t beside)
{
    return allocate(size, beside);
}

void *memory_allocate_array(size_t count, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total))
        return NULL;
    return memory_allocate(total);
}

void *memory_allocate_zeroed(size_t count, size_t size)
{
    void *block = memory_allocate_array(count, size);
    if (block != NULL)
        memset(block, 0, count * size);
    return block;
}

/* The new block is charged to the account of the old one. */
static void *reallocate(struct header *header, size_t size)
{
    struct memory_account *account = header->account;
    size_t before = header->charged, total;
    if (__builtin_add_overflow(size, sizeof *header, &total) ||
        !memory_account_charge(account, total > before ? total - before : 0))
        return NULL;
    struct header *moved = allocator.reallocate(allocator.context, header, total);
    if (moved == NULL) {
        memory_account_discharge(account, total > before ? total - before : 0);
        return NULL;
    }
    memory_account_discharge(account, total < before ? before - total : 0);
    moved->charged = total;
    return moved + 1;
}

void *memory_reallocate_array(void *block, size_t count, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total))
        return NULL;
    return block != NULL ? reallocate(header_of(block), total != 0 ? total : 1)
                         : memory_allocate(total);
}

void memory_release(void *block)
{
    if (block == NULL)
        return;
    struct header header = *header_of(block);
    allocator.release(allocator.context, header_of(block));
    memory_account_discharge(header.account, header.charged);
}

/* The allocator's own pointer is stored right before the aligned block. */
void *memory_allocate_aligned(size_t alignment, size_t size)
{
    size_t total;
    if (__builtin_add_overflow(size, alignment + sizeof(void *), &total))
        return NULL;
    unsigned char *block = memory_allocate(total);
    if (block == NULL)
        return NULL;
    size_t past = ((uintptr_t)block + sizeof(void *)) % alignment;
    unsigned char *aligned = block + sizeof(void *) + (past != 0 ? alignment - past : 0);
    memcpy(aligned - sizeof(void *), &block, sizeof block);
    return aligned;
}

void memory_release_aligned(void *aligned)
{
    if (aligned == NULL)
        return;
    void *block;
    memcpy(&block, (unsigned char *)aligned - sizeof(void *), sizeof block);
    memory_release(block);
}

static size_t large_alignment(uint64_t size)
{
    return size >= LARGE_PAGE ? LARGE_PAGE : PAGE;
}

/* Where malloc() hands out again what has been used, its ordinary pages would stay what they are:
 * they go back to the system first. Other allocators may have told devices where their memory is.
 * Large pages are optional: without them, transfers are only slower. */
static void ask_for_large_pages(void *block, size_t size)
{
    if (allocator.allocate == system_allocate)
        madvise(block, size, MADV_DONTNEED);
    madvise(block, size, MADV_HUGEPAGE);
}

void *memory_allocate_large(size_t size)
{
    void *block = memory_allocate_aligned(large_alignment(size), size);
    if (block != NULL && size >= LARGE_PAGE)
        ask_for_large_pages(block, size & ~(LARGE_PAGE - 1));
    return block;
}

dcp_status dcp_memory_allocate(size_t size, void **memory)
{
    /* It becomes the caller's, also if a callback of a save or load asks for it. */
    struct memory_account *before = memory_account_enter(NULL);
    *memory = memory_allocate_large(size);
    memory_account_enter(before);
    return *memory ? DCP_OK : error_no_memory(size, "a tensor");
}

void dcp_memory_free(void *memory)
{
    memory_release_aligned(memory);
}

void dcp_memory_copy(void *to, const void *from, size_t size)
{
    if (size > 0)
        stream_copy(to, from, size);
}

size_t dcp_memory_in_large_pages(const void *memory, size_t size)
{
    return large_pages_count(memory, size);
}

uint64_t memory_large_size(uint64_t size)
{
    return size + large_alignment(size) + BLOCK_ROOM;
}

char *memory_copy_text(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = memory_allocate(size);
    if (copy != NULL)
        memcpy(copy, text, size);
    return copy;
}
