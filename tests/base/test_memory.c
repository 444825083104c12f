/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/memory_account.h"
#include "dcp/environment.h"
#include "fault/failing_allocator.h"

#define LARGE_PAGE ((size_t)2 << 20)

static void an_incomplete_allocator_is_refused(void **state)
{
    (void)state;
    dcp_allocator none = {0};
    assert_int_equal(dcp_set_allocator(&none), DCP_ERR_ARGUMENT);
    assert_int_equal(dcp_set_allocator(NULL), DCP_OK);
}

static void sizes_that_overflow_are_refused(void **state)
{
    (void)state;
    failing_allocator_install(0, false);
    assert_null(memory_allocate_array(SIZE_MAX / 2, 3));
    assert_null(memory_allocate_zeroed(SIZE_MAX / 2, 3));
    assert_null(memory_reallocate_array(NULL, SIZE_MAX / 2, 3));
    assert_null(memory_allocate_aligned(64, SIZE_MAX - 8));
    assert_int_equal(failing_allocator_count(), 0);
    assert_int_equal(failing_allocator_remove(), 0);
}

static void nothing_is_a_block_too(void **state)
{
    (void)state;
    void *a = memory_allocate(0), *b = memory_allocate_array(0, 8);
    assert_non_null(a);
    assert_non_null(b);
    assert_ptr_not_equal(a, b);
    a = memory_reallocate_array(a, 0, 1);
    assert_non_null(a);
    memory_release(a);
    memory_release(b);
    memory_release(NULL);
}

static void zeroed_memory_is_zero(void **state)
{
    (void)state;
    unsigned char *bytes = memory_allocate_zeroed(100, 3);
    for (size_t i = 0; i < 300; i++)
        assert_int_equal(bytes[i], 0);
    memory_release(bytes);
}

static void aligned_memory_is_aligned_and_whole(void **state)
{
    (void)state;
    failing_allocator_install(0, false);
    for (size_t alignment = 1; alignment <= 8192; alignment *= 2) {
        unsigned char *bytes = memory_allocate_aligned(alignment, 100);
        assert_int_equal((uintptr_t)bytes % alignment, 0);
        memset(bytes, 0xff, 100);
        memory_release_aligned(bytes);
    }
    memory_release_aligned(NULL);
    assert_int_equal(failing_allocator_remove(), 0);
    failing_allocator_install(1, false);
    assert_null(memory_allocate_aligned(64, 1));
    assert_int_equal(failing_allocator_remove(), 0);
    failing_allocator_install(1, false);
    assert_null(memory_copy_text("text"));
    assert_int_equal(failing_allocator_remove(), 0);
}

static void large_memory_is_aligned_whole_and_paid_for(void **state)
{
    static const size_t sizes[] = {0, 1, 5000, LARGE_PAGE - 1, LARGE_PAGE, 2 * LARGE_PAGE + 777};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct memory_account *account = memory_account_open(0);
        memory_account_enter(account);
        uint64_t before = memory_account_taken(account);
        unsigned char *bytes = memory_allocate_large(sizes[i]);
        uint64_t taken = memory_account_taken(account) - before;
        memory_account_enter(NULL);
        assert_non_null(bytes);
        assert_int_equal((uintptr_t)bytes % (sizes[i] >= LARGE_PAGE ? LARGE_PAGE : 4096), 0);
        assert_true(taken >= sizes[i] && taken <= memory_large_size(sizes[i]));
        memset(bytes, 0xff, sizes[i]);
        memory_release_aligned(bytes);
        assert_int_equal(memory_account_taken(account), before);
        memory_account_close(account);
    }
    assert_null(memory_allocate_large(SIZE_MAX - 8));
    failing_allocator_install(1, false);
    assert_null(memory_allocate_large(LARGE_PAGE));
    assert_int_equal(failing_allocator_remove(), 0);
}

/* The flags that the system keeps of the memory at an address; false: it does not say. */
static bool find_flags(const void *address, char *line, size_t size)
{
    unsigned long start, end;
    bool inside = false, found = false;
    FILE *file = fopen("/proc/self/smaps", "r");
    while (file && !found && fgets(line, (int)size, file)) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            inside = start <= (uintptr_t)address && (uintptr_t)address < end;
        found = inside && strncmp(line, "VmFlags:", 8) == 0;
    }
    if (file)
        fclose(file);
    return found;
}

static void large_pages_are_asked_for(void **state)
{
    char flags[512], setting[128];
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    (void)state;
    if (!file || !fgets(setting, sizeof setting, file))
        setting[0] = 0;
    if (file)
        fclose(file);
    unsigned char *bytes = memory_allocate_large(2 * LARGE_PAGE);
    bool known = find_flags(bytes + LARGE_PAGE, flags, sizeof flags) && setting[0];
    memory_release_aligned(bytes);
    if (!known)
        skip();
    assert_non_null(strstr(flags, " hg"));
}

static void arena_blocks_are_aligned_and_apart(void **state)
{
    (void)state;
    enum { BLOCKS = 2000 };
    static unsigned char *blocks[BLOCKS];
    failing_allocator_install(0, false);
    struct arena arena;
    arena_init(&arena, 0);
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t size = i % 100 == 0 ? i * 1000 : i % 37;
        blocks[i] = arena_allocate(&arena, size);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % 8, 0);
        memset(blocks[i], (int)(i % 251), size);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t size = i % 100 == 0 ? i * 1000 : i % 37;
        for (size_t k = 0; k < size; k++)
            assert_int_equal(blocks[i][k], i % 251);
    }
    assert_true(failing_allocator_count() < 100);
    arena_free(&arena);
    assert_int_equal(arena.total, 0);
    assert_int_equal(failing_allocator_remove(), 0);
}

static void arena_copies(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, 0);
    assert_string_equal(arena_copy_text(&arena, "shard of", 5), "shard");
    assert_string_equal(arena_copy_text(&arena, NULL, 0), "");
    assert_memory_equal(arena_copy(&arena, "\1\2\3", 3), "\1\2\3", 3);
    assert_non_null(arena_copy(&arena, NULL, 0));
    assert_null(arena_allocate(&arena, SIZE_MAX));
    assert_null(arena_allocate(&arena, SIZE_MAX - 16));
    assert_null(arena_allocate_array(&arena, SIZE_MAX / 4, 8));
    assert_null(arena_copy_text(&arena, "", SIZE_MAX));
    arena_free(&arena);
}

static void an_arena_keeps_its_limit(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, 10000);
    size_t taken = 0;
    while (arena_allocate(&arena, 64) != NULL)
        taken += 64;
    assert_true(arena.total <= 10000);
    assert_true(taken > 5000 && taken <= 10000);
    assert_null(arena_allocate(&arena, 5000));
    arena_free(&arena);
    assert_non_null(arena_allocate(&arena, 5000));
    arena_free(&arena);
}

static void an_arena_survives_any_failed_allocation(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        failing_allocator_install(n, false);
        struct arena arena;
        arena_init(&arena, 0);
        size_t failures = 0;
        for (size_t i = 0; i < 300; i++) {
            unsigned char *bytes = arena_allocate(&arena, i % 7 == 0 ? 300000 : 100);
            if (bytes != NULL)
                memset(bytes, 1, 100);
            failures += bytes == NULL;
        }
        arena_free(&arena);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        assert_int_equal(failures, reached);
        if (!reached)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_incomplete_allocator_is_refused),
        cmocka_unit_test(sizes_that_overflow_are_refused),
        cmocka_unit_test(nothing_is_a_block_too),
        cmocka_unit_test(zeroed_memory_is_zero),
        cmocka_unit_test(aligned_memory_is_aligned_and_whole),
        cmocka_unit_test(large_memory_is_aligned_whole_and_paid_for),
        cmocka_unit_test(large_pages_are_asked_for),
        cmocka_unit_test(arena_blocks_are_aligned_and_apart),
        cmocka_unit_test(arena_copies),
        cmocka_unit_test(an_arena_keeps_its_limit),
        cmocka_unit_test(an_arena_survives_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
