/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/memory_account.h"
#include "base/thread.h"
#include "dcp/environment.h"
#include "fault/failing_allocator.h"

/* What is charged for a block beside its own size, at most. */
#define BESIDE 64

static void the_most_is_remembered(void **state)
{
    (void)state;
    failing_allocator_install(0, false);
    struct memory_account *account = memory_account_open(0);
    assert_null(memory_account_enter(account));
    uint64_t before = memory_account_peak(account);
    void *a = memory_allocate(1000), *b = memory_allocate_zeroed(10, 500);
    memory_release(a);
    void *c = memory_allocate_aligned(64, 900);
    assert_in_range(memory_account_peak(account), before + 6000, before + 6000 + 2 * BESIDE);
    b = memory_reallocate_array(b, 20, 500);
    assert_in_range(memory_account_peak(account), before + 10900, before + 10900 + 4 * BESIDE);
    b = memory_reallocate_array(b, 1, 8);
    void *d = memory_allocate_beside(10, 9000);
    assert_in_range(memory_account_peak(account), before + 10900, before + 10900 + 4 * BESIDE);
    memory_release(d);
    memory_release(b);
    memory_release_aligned(c);
    assert_ptr_equal(memory_account_enter(NULL), account);
    memory_account_close(account);
    memory_account_close(NULL);
    assert_int_equal(failing_allocator_remove(), 0);
}

static void others_do_not_pay(void **state)
{
    (void)state;
    struct memory_account *account = memory_account_open(0);
    struct memory_account *other = memory_account_open(0);
    uint64_t before = memory_account_peak(account);
    void *nobodys = memory_allocate(5000);
    memory_account_enter(account);
    void *unpaid = memory_allocate_unpaid(5000);
    assert_int_equal(memory_account_peak(account), before);
    struct arena arena;
    arena_init(&arena, 0);
    arena.unpaid = true;
    assert_non_null(arena_allocate(&arena, 5000));
    assert_int_equal(memory_account_peak(account), before);
    arena_free(&arena);
    void *mine = memory_allocate(100);
    memory_account_enter(other);
    /* Who pays goes on to pay. */
    mine = memory_reallocate_array(mine, 1, 3000);
    unpaid = memory_reallocate_array(unpaid, 1, 9000);
    assert_in_range(memory_account_peak(account), before + 3000, before + 3000 + BESIDE);
    assert_int_equal(memory_account_peak(other), before);
    memory_account_enter(NULL);
    memory_release(nobodys);
    memory_release(unpaid);
    memory_release(mine);
    memory_account_close(account);
    memory_account_close(other);
}

static void blocks_outlive_it(void **state)
{
    (void)state;
    failing_allocator_install(0, false);
    struct memory_account *account = memory_account_open(0);
    memory_account_enter(account);
    void *block = memory_allocate(100);
    memory_account_enter(NULL);
    memory_account_close(account);
    memory_release(block);
    assert_int_equal(failing_allocator_remove(), 0);
}

static void a_limit_is_kept(void **state)
{
    (void)state;
    struct memory_account *account = memory_account_open(10000);
    memory_account_enter(account);
    assert_int_equal(memory_account_limit_reached(), 0);
    void *block = memory_allocate(8000);
    assert_non_null(block);
    assert_null(memory_allocate(4000));
    assert_null(memory_allocate_beside(1, 4000));
    assert_null(memory_allocate_beside(1, SIZE_MAX));
    assert_null(memory_reallocate_array(block, 2, 8000));
    assert_int_equal(memory_account_limit_reached(), 10000);
    error_no_memory(4000, "something");
    assert_string_equal(
        dcp_error_message(),
        "no memory for 4000 bytes of something within the memory limit of 10000 bytes");
    memory_release(block);
    block = memory_allocate(9000);
    assert_non_null(block);
    memory_release(block);
    assert_true(memory_account_peak(account) <= 10000);
    memory_account_enter(NULL);
    assert_int_equal(memory_account_limit_reached(), 0);
    memory_account_close(account);
}

static void what_the_system_refuses_is_not_charged(void **state)
{
    (void)state;
    struct memory_account *account = memory_account_open(2000);
    memory_account_enter(account);
    void *kept = memory_allocate(100);
    for (int i = 0; i < 100; i++) {
        failing_allocator_install(1, true);
        assert_null(memory_allocate(1000));
        assert_null(memory_reallocate_array(kept, 1, 1000));
        assert_int_equal(failing_allocator_remove(), 0);
    }
    assert_int_equal(memory_account_limit_reached(), 0);
    memory_release(kept);
    memory_account_enter(NULL);
    memory_account_close(account);
    failing_allocator_install(1, false);
    assert_null(memory_account_open(0));
    assert_int_equal(failing_allocator_remove(), 0);
}

struct gathering {
    struct memory_account *account;
    pthread_barrier_t all;
};

static dcp_status allocate_together(void *context, size_t index)
{
    struct gathering *gathering = context;
    assert_ptr_equal(memory_account_current(), gathering->account);
    void *block = memory_allocate(1000 * (index + 1));
    pthread_barrier_wait(&gathering->all);
    memory_release(block);
    return DCP_OK;
}

static void threads_work_for_it(void **state)
{
    (void)state;
    struct gathering gathering = {.account = memory_account_open(0)};
    pthread_barrier_init(&gathering.all, NULL, 4);
    memory_account_enter(gathering.account);
    assert_int_equal(thread_run(4, 4, allocate_together, &gathering), DCP_OK);
    uint64_t peak = memory_account_peak(gathering.account);
    /* The blocks, and the stacks of three threads. */
    assert_in_range(peak, 10000 + 3 * 65536, 10000 + (4 << 20));
    assert_int_equal(thread_run(4, 4, allocate_together, &gathering), DCP_OK);
    assert_in_range(memory_account_peak(gathering.account), peak - 1000, peak + 1000);
    memory_account_enter(NULL);
    memory_account_close(gathering.account);
    pthread_barrier_destroy(&gathering.all);
}

static dcp_status count_calls(void *context, size_t index)
{
    (void)index;
    ++*(int *)context;
    return DCP_OK;
}

static void without_room_for_a_stack_there_is_one_thread(void **state)
{
    (void)state;
    int calls = 0;
    struct memory_account *account = memory_account_open(10000);
    memory_account_enter(account);
    assert_int_equal(thread_run(100, 4, count_calls, &calls), DCP_OK);
    assert_int_equal(calls, 100);
    assert_true(memory_account_peak(account) <= 10000);
    memory_account_enter(NULL);
    memory_account_close(account);
}

static void give_back(void *context)
{
    void **block = context;
    memory_release(*block);
    *block = NULL;
}

static void what_is_spare_is_given_back_first(void **state)
{
    (void)state;
    struct memory_account *account = memory_account_open(10000);
    memory_account_enter(account);
    void *spare = memory_allocate(6000);
    memory_account_set_spare(account, give_back, &spare);
    void *small = memory_allocate(1000);
    assert_non_null(spare);
    void *large = memory_allocate(5000);
    assert_non_null(large);
    assert_null(spare);
    assert_int_equal(memory_account_limit_reached(), 0);
    assert_null(memory_allocate(5000));
    assert_int_equal(memory_account_limit_reached(), 10000);
    memory_account_set_spare(NULL, give_back, &spare);
    memory_release(large);
    memory_release(small);
    memory_account_enter(NULL);
    memory_account_close(account);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_most_is_remembered),
        cmocka_unit_test(others_do_not_pay),
        cmocka_unit_test(blocks_outlive_it),
        cmocka_unit_test(a_limit_is_kept),
        cmocka_unit_test(what_is_spare_is_given_back_first),
        cmocka_unit_test(what_the_system_refuses_is_not_charged),
        cmocka_unit_test(threads_work_for_it),
        cmocka_unit_test(without_room_for_a_stack_there_is_one_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
