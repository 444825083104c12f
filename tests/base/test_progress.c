/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/progress.h"
#include "base/thread.h"

static int64_t now_ns;

static int64_t still(void *context)
{
    (void)context;
    return now_ns;
}

static const struct clock_source standing = {still, still, NULL, NULL};

struct listener {
    int calls;
    int cancels_at; /* call, from 1; 0: never */
    atomic_int inside;
    dcp_progress last;
};

static bool listen(void *context, const dcp_progress *progress)
{
    struct listener *listener = context;
    assert_int_equal(atomic_fetch_add(&listener->inside, 1), 0);
    listener->calls++;
    assert_true(progress->bytes_done >= listener->last.bytes_done);
    listener->last = *progress;
    atomic_fetch_sub(&listener->inside, 1);
    return listener->calls != listener->cancels_at;
}

static void test_reports_now_and_then(void **state)
{
    (void)state;
    struct listener listener = {0};
    struct progress progress;
    now_ns = 1000000000;
    clock_replace(&standing);
    progress_init(&progress, listen, &listener);
    assert_int_equal(progress_enter(&progress, DCP_PHASE_WRITING, 1000), DCP_OK);
    for (int i = 0; i < 100; i++) {
        now_ns += 1000000;
        assert_int_equal(progress_add(&progress, 10), DCP_OK);
    }
    assert_int_equal(listener.calls, 11);
    assert_int_equal(listener.last.phase, DCP_PHASE_WRITING);
    assert_int_equal(listener.last.bytes_done, 1000);
    assert_int_equal(progress_enter(&progress, DCP_PHASE_COMMIT, 1000), DCP_OK);
    assert_int_equal(listener.calls, 12);
    assert_int_equal(listener.last.phase, DCP_PHASE_COMMIT);
    progress_free(&progress);
    clock_replace(NULL);
}

static void test_reports_all_of_a_part(void **state)
{
    (void)state;
    struct listener listener = {0};
    struct progress progress;
    progress_init(&progress, listen, &listener);
    struct progress_part part = {&progress, 100};
    assert_int_equal(progress_part_add(&part, 70), DCP_OK);
    assert_int_equal(progress_part_add(&part, 70), DCP_OK);
    assert_int_equal(progress_part_end(&part), DCP_OK);
    part = (struct progress_part){&progress, 50};
    assert_int_equal(progress_part_add(&part, 10), DCP_OK);
    assert_int_equal(progress_part_end(&part), DCP_OK);
    assert_int_equal(progress_enter(&progress, DCP_PHASE_COMMIT, 150), DCP_OK);
    assert_int_equal(listener.last.bytes_done, 150);
    progress_free(&progress);
}

static void test_nobody_listens(void **state)
{
    (void)state;
    struct progress progress;
    progress_init(&progress, NULL, NULL);
    assert_int_equal(progress_enter(&progress, DCP_PHASE_READING, 1), DCP_OK);
    assert_int_equal(progress_add(&progress, 1), DCP_OK);
    assert_int_equal(progress_add(NULL, 1), DCP_OK);
    progress_free(&progress);
}

static void test_cancels_for_good(void **state)
{
    (void)state;
    struct listener listener = {.cancels_at = 1};
    struct progress progress;
    progress_init(&progress, listen, &listener);
    assert_int_equal(progress_enter(&progress, DCP_PHASE_WRITING, 9), DCP_ERR_CANCELLED);
    assert_int_equal(progress_add(&progress, 9), DCP_ERR_CANCELLED);
    assert_int_equal(progress_enter(&progress, DCP_PHASE_COMMIT, 9), DCP_ERR_CANCELLED);
    assert_int_equal(listener.calls, 1);
    progress_free(&progress);
}

static dcp_status add_some(void *context, size_t index)
{
    (void)index;
    return progress_add(context, 3);
}

static void test_one_thread_at_a_time(void **state)
{
    (void)state;
    struct listener listener = {0};
    struct progress progress;
    progress_init(&progress, listen, &listener);
    assert_int_equal(thread_run(10000, 4, add_some, &progress), DCP_OK);
    assert_int_equal(progress_enter(&progress, DCP_PHASE_COMMIT, 30000), DCP_OK);
    assert_int_equal(listener.last.bytes_done, 30000);
    progress_free(&progress);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reports_now_and_then), cmocka_unit_test(test_reports_all_of_a_part),
        cmocka_unit_test(test_nobody_listens),       cmocka_unit_test(test_cancels_for_good),
        cmocka_unit_test(test_one_thread_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
