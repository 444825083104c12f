/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory for tensors, and which of it is in large pages: as this machine says, and as a list of
 * mappings would. */
#include <limits.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/large_pages.h"
#include "base/memory_account.h"
#include "dcp/environment.h"
#include "fault/failing_allocator.h"

#define LARGE ((size_t)2 << 20)

static void memory_is_the_callers(void **state)
{
    static const size_t sizes[] = {0, 1, 4096, LARGE - 1, LARGE, 5 * LARGE + 77};
    struct memory_account *account = memory_account_open(4096);
    (void)state;
    assert_non_null(account);
    failing_allocator_install(0, false);
    memory_account_enter(account);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *memory = NULL;
        assert_int_equal(dcp_memory_allocate(sizes[i], &memory), DCP_OK);
        assert_int_equal((uintptr_t)memory % (sizes[i] >= LARGE ? LARGE : 4096), 0);
        memset(memory, 0xff, sizes[i]);
        assert_true(dcp_memory_in_large_pages(memory, sizes[i]) <= sizes[i]);
        dcp_memory_free(memory);
    }
    assert_true(memory_account_current() == account);
    memory_account_enter(NULL);
    dcp_memory_free(NULL);
    assert_int_equal(failing_allocator_remove(), 0);
    memory_account_close(account);

    void *none = &none;
    failing_allocator_install(1, false);
    assert_int_equal(dcp_memory_allocate(LARGE, &none), DCP_ERR_NO_MEMORY);
    assert_null(none);
    assert_int_equal(failing_allocator_remove(), 0);
    none = &none;
    assert_int_equal(dcp_memory_allocate(SIZE_MAX - 5, &none), DCP_ERR_NO_MEMORY);
    assert_null(none);
}

/* Whether the system grants large pages to who asks. */
static bool grants_large_pages(void)
{
    char text[64] = "";
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[length] = '\0';
    if (file)
        fclose(file);
    return length > 0 && !strstr(text, "[never]");
}

/* Whether memory that nobody has used is in them. */
static bool large_pages_are_had(void)
{
    size_t size = 4 * LARGE;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    madvise(memory, size, MADV_HUGEPAGE);
    memset(memory, 1, size);
    size_t large = dcp_memory_in_large_pages(memory, size);
    munmap(memory, size);
    return grants_large_pages() && large >= 2 * LARGE;
}

static void what_is_in_large_pages_is_found(void **state)
{
    void *memory;
    size_t size = 8 * LARGE;
    (void)state;
    assert_int_equal(dcp_memory_allocate(size, &memory), DCP_OK);
    unsigned char *bytes = memory;
    madvise(bytes + 4 * LARGE, 2 * LARGE, MADV_NOHUGEPAGE);
    assert_int_equal(dcp_memory_in_large_pages(bytes, size), 0);
    memset(bytes, 1, size);
    assert_int_equal(dcp_memory_in_large_pages(bytes + 4 * LARGE, 2 * LARGE), 0);
    assert_int_equal(dcp_memory_in_large_pages(bytes, 0), 0);
    assert_int_equal(dcp_memory_in_large_pages(NULL, SIZE_MAX), 0);
    size_t large = dcp_memory_in_large_pages(bytes, size);
    if (!grants_large_pages() || large != 6 * LARGE) {
        dcp_memory_free(memory);
        print_message("there are no large pages to be had\n");
        return;
    }
    /* Bytes and not pages are counted. */
    assert_int_equal(dcp_memory_in_large_pages(bytes + 5, 4 * LARGE - 9), 4 * LARGE - 9);
    assert_int_equal(dcp_memory_in_large_pages(bytes + 4 * LARGE - 1, 3 * LARGE), LARGE);
    /* The older way finds no more, and where a mapping is all of one kind as many. */
    const char *list = "/proc/self/smaps";
    assert_int_equal(large_pages_count_by_mappings(list, bytes, 4 * LARGE), 4 * LARGE);
    assert_int_equal(large_pages_count_by_mappings(list, bytes + 4 * LARGE, 2 * LARGE), 0);
    assert_true(large_pages_count_by_mappings(list, bytes, size) <= large);
    dcp_memory_free(memory);
}

/* Not only what asks by itself: many mappings in turn. */
static void many_ranges_are_found(void **state)
{
    void *memory;
    enum { PAIRS = 50 };
    (void)state;
    assert_int_equal(dcp_memory_allocate(2 * PAIRS * LARGE, &memory), DCP_OK);
    unsigned char *bytes = memory;
    for (size_t i = 0; i < PAIRS; i++)
        madvise(bytes + (2 * i + 1) * LARGE, LARGE, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < 2 * PAIRS; i++)
        bytes[i * LARGE] = 1;
    size_t each = 0;
    for (size_t i = 0; i < PAIRS; i++)
        each += dcp_memory_in_large_pages(bytes + 2 * i * LARGE, LARGE);
    assert_int_equal(dcp_memory_in_large_pages(bytes, 2 * PAIRS * LARGE), each);
    dcp_memory_free(memory);
}

static size_t count_in(const char *text, uintptr_t from, size_t size)
{
    char path[] = "large_pages.XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), strlen(text));
    close(file);
    size_t count = large_pages_count_by_mappings(path, (const void *)from, size);
    unlink(path);
    return count;
}

static void lists_of_mappings_are_read(void **state)
{
    static const char list[] = "00400000-00500000 r-xp 00000000 08:02 173521 /usr/bin/dbus\n"
                               "Size:               1024 kB\nAnonHugePages:         0 kB\n"
                               "40000000-40800000 rw-p 00000000 00:00 0\n"
                               "Rss:                8192 kB\nAnonHugePages:      6144 kB\n"
                               "ShmemPmdMapped:        0 kB\nVmFlags: rd wr mr\n"
                               "40800000-40a00000 rw-p 00000000 00:00 0\n"
                               "Private_Hugetlb:    2048 kB";
    (void)state;
    /* All of a mapping; of which a part is in others. */
    assert_int_equal(count_in(list, 0x40800000, 2 << 20), 2 << 20);
    assert_int_equal(count_in(list, 0x40000000, 8 << 20), 6 << 20);
    assert_int_equal(count_in(list, 0x40000000, 4 << 20), 2 << 20);
    assert_int_equal(count_in(list, 0x40000000, 1 << 20), 0);
    assert_int_equal(count_in(list, 0x40400000, 6 << 20), (2 << 20) + (2 << 20));
    assert_int_equal(count_in(list, 0x00400000, 1 << 20), 0);
    assert_int_equal(count_in("", 0x1000, 1 << 20), 0);
    assert_int_equal(large_pages_count_by_mappings("large_pages.missing", &list, 1), 0);
    /* A name that is longer than any line that counts. */
    char text[10000];
    memset(text, 'x', sizeof text);
    static const char first[] = "40000000-40200000 rw-p 00000000 00:00 0 /";
    static const char last[] = "\nAnonHugePages: 2048 kB\n";
    memcpy(text, first, sizeof first - 1);
    memcpy(text + sizeof text - sizeof last, last, sizeof last);
    assert_int_equal(count_in(text, 0x40000000, 2 << 20), 2 << 20);
}

/* Ordinary pages of what malloc() had given to others, which has gone back to it. */
static void used_memory_is_in_large_pages_as_well(void **state)
{
    size_t size = 4 * LARGE, used_size = 8 * LARGE;
    void *memory;
    (void)state;
    if (!mallopt(M_MMAP_THRESHOLD, INT_MAX) || !mallopt(M_TRIM_THRESHOLD, INT_MAX))
        skip(); /* another malloc() */
    unsigned char *used = malloc(used_size);
    assert_non_null(used);
    uintptr_t page = ((uintptr_t)used + LARGE - 1) / LARGE * LARGE;
    madvise((void *)page, used_size - LARGE, MADV_NOHUGEPAGE);
    for (size_t at = 0; at < used_size; at += 4096)
        *(volatile unsigned char *)(used + at) = 1;
    free(used);

    assert_int_equal(dcp_memory_allocate(size, &memory), DCP_OK);
    memset(memory, 2, size);
    size_t large = dcp_memory_in_large_pages(memory, size);
    dcp_memory_free(memory);
    if (!large_pages_are_had())
        skip();
    assert_int_equal(large, size);
}

static void *allocate_used(void *context, size_t size)
{
    void *block = malloc(size);
    (void)context;
    return block ? memset(block, 0xab, size) : NULL;
}

static void *reallocate(void *context, void *block, size_t size)
{
    (void)context;
    return realloc(block, size);
}

static void release(void *context, void *block)
{
    (void)context;
    free(block);
}

/* A device may know in which pages it is. */
static void pages_of_the_callers_allocator_stay(void **state)
{
    const dcp_allocator callers = {allocate_used, reallocate, release, NULL};
    void *memory;
    (void)state;
    assert_int_equal(dcp_set_allocator(&callers), DCP_OK);
    assert_int_equal(dcp_memory_allocate(2 * LARGE, &memory), DCP_OK);
    for (size_t at = 0; at < 2 * LARGE; at++)
        assert_int_equal(((unsigned char *)memory)[at], 0xab);
    dcp_memory_free(memory);
    assert_int_equal(dcp_set_allocator(NULL), DCP_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_the_callers),
        cmocka_unit_test(what_is_in_large_pages_is_found),
        cmocka_unit_test(many_ranges_are_found),
        cmocka_unit_test(lists_of_mappings_are_read),
        cmocka_unit_test(used_memory_is_in_large_pages_as_well),
        cmocka_unit_test(pages_of_the_callers_allocator_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
